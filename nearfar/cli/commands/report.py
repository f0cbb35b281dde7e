"""Write a page about a run that a browser opens offline."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Results"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar report`."""
    parser = FlagParser(
        "nearfar report",
        "RUN",
        "Write RUN/report.html: the method, the course of the training, the numbers, the pictures. It works offline.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder")
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.load import load
    from nearfar.api.report import write_model_report

    print(
        write_model_report(
            load(given["run"], recipe=given.get("recipe")), progress=terminal.show_progress("embedding", given.get("quiet", False))
        )
    )
