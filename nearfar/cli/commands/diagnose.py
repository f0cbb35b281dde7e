"""Measure what is wrong with a run and suggest what to try."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Results"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar diagnose`."""
    about = "Measure what is wrong with a run and suggest what to try: collapse, false negatives, temperature, views, anisotropy, leaks."
    parser = FlagParser("nearfar diagnose", "RUN [--data DATA] [--json]", about)
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--data", metavar="DATA", help="the data, if the run was trained on an array")
    parser.add_argument("--json", action="store_true", help="print findings and all measurements as JSON")
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.diagnose import diagnose as examine
    from nearfar.api.load import load

    found = examine(load(given["run"], given["device"], given.get("recipe")), given.get("data"))
    print(found.to_json() if given.get("json") else found.render())
