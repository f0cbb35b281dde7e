"""Train, measure and report once on a bundled dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options

GROUP = "Training"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar demo`."""
    about = "Train, measure and report once on a bundled dataset."
    parser = FlagParser("nearfar demo", "[--out FOLDER] [--seed N] [--overwrite]", about)
    parser.add_argument("--out", default="demo", metavar="FOLDER", help="output folder. Default: demo.")
    parser.add_argument("--seed", default=0, **get_argparse_options(int), help="random seed. Default: 0.")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run in --out")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.demo import run_demo
    from nearfar.cli.progress_bar import ProgressBar

    quiet = given.get("quiet", False)
    table = run_demo(given["out"], given["seed"], overwrite=given.get("overwrite", False), hooks=[ProgressBar(quiet)])
    print(table.render())
    if not quiet:
        print(f"The run is in {given['out']}; a browser opens {Path(given['out']) / 'report.html'}", file=sys.stderr)
