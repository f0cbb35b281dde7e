"""List all methods by modality, year, paper and loss."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nearfar import recipes
from nearfar.cli import terminal
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser
from nearfar.core import UsageError
from nearfar.core.errors import suggest_similar_names

GROUP = "Methods"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar list`."""
    parser = FlagParser("nearfar list", "[--modality NAME] [--json]", "All methods, one a line.")
    parser.add_argument("--modality", metavar="NAME", help="show only methods for this modality, such as image")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.reports import method_card as cards

    rows = [cards.build_method_row(recipes.load_method(name)) for name in recipes.list_methods()]
    wanted, known = given.get("modality"), sorted({row["modality"] for row in rows})
    if wanted is not None and wanted not in known:
        raise UsageError(f"--modality: there is no method for {wanted!r}.{suggest_similar_names(wanted, known)} Known: {', '.join(known)}")
    rows = [row for row in rows if wanted in (None, row["modality"])]
    if given.get("json"):
        print(json.dumps(rows, indent=2))
    else:
        terminal.print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])
