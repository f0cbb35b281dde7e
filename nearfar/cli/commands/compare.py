"""Compare several runs in one table and one figure, with their spread over seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser
from nearfar.core import NearfarError

GROUP = "Results"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar compare`."""
    about = (
        "Several runs in one table: results with their spread over seeds, cost, and the settings that differ. Results that "
        "`nearfar eval` left in a run's folder are used; what is missing is measured."
    )
    parser = FlagParser("nearfar compare", "RUN RUN … [--html FILE] [--json]", about)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders; runs that differ only in the seed are one row")
    parser.add_argument("--html", metavar="FILE", help="write table and figures as a page that works offline")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.compare import compare_runs
    from nearfar.reports.comparison import write_comparison

    show = terminal.show_progress("embedding", given.get("quiet", False))
    found = compare_runs(given["runs"], device=given["device"], recipe=given.get("recipe"), progress=show)
    print(found.to_json() if given.get("json") else found.render())
    if "html" in given:
        write_comparison(given["html"], found)
    if found.incompatibilities:
        sys.stdout.flush()
        raise NearfarError(f"these numbers are not comparable, they are only shown side by side: {'. '.join(found.incompatibilities)}")
