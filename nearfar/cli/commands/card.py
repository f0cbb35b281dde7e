"""Show what one method claims: equation, hyperparameters, published numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nearfar import recipes
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Methods"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar card`."""
    parser = FlagParser(
        "nearfar card", "RECIPE [--json]", "What a method claims, its equation, its hyperparameters, settings and numbers of its paper."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="name from `nearfar list`, or a Python file with a custom recipe")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.reports import method_card as cards

    method = recipes.load_method(given["recipe"])
    print(json.dumps(cards.as_dict(method), indent=2) if given.get("json") else cards.as_text(method))
