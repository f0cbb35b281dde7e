"""Show what one method claims: equation, hyperparameters, published numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Methods"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar card`."""
    about = "What a method claims, its equation, its hyperparameters, settings and numbers of its paper."
    parser = FlagParser("nearfar card", "RECIPE [--latex] [--json]", about)
    parser.add_argument("recipe", metavar="RECIPE", help="name from `nearfar list`, or a Python file with a custom recipe")
    parser.add_argument("--latex", action="store_true", help="print equations in LaTeX instead of Unicode text")
    parser.add_argument("--json", action="store_true", help="print a JSON object, with the equation in LaTeX")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.recipes.method_summary import find_method_summary
    from nearfar.reports.method_card import as_dict, as_text

    summary = find_method_summary(given["recipe"])
    print(json.dumps(as_dict(summary), indent=2) if given.get("json") else as_text(summary, latex=given.get("latex", False)))
