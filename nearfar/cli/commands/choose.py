"""Try several methods on your data and rank them without labels."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli.common_flags import add_device_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError

GROUP = "Methods"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar choose`."""
    about = "Try several methods on your data for a given time. Rank them without labels, by the geometry of their vectors."
    parser = FlagParser("nearfar choose", "--data DATA --budget SECONDS [--recipes A,B,C] [--out FOLDER] [--json]", about)
    parser.add_argument("--data", required=True, metavar="DATA", help="data, as in `nearfar fit --data`")
    parser.add_argument("--budget", required=True, **get_argparse_options(float), help="time limit for all trials together, in seconds")
    parser.add_argument("--recipes", metavar="A,B,C", help="methods to try. Default: a few for the modality.")
    parser.add_argument("--out", metavar="FOLDER", help="keep the trials as runs in this folder. Default: discard them.")
    parser.add_argument("--steps", **get_argparse_options(int), help="maximum number of steps for each method")
    parser.add_argument("--encoder", default="auto", metavar="NAME", help="encoder of all methods, as in `nearfar fit`. Default: auto.")
    parser.add_argument("--seed", default=0, **get_argparse_options(int), help="random seed. Default: 0.")
    parser.add_argument("--json", action="store_true", help="print the ranking as JSON")
    add_device_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    if given["budget"] <= 0:
        raise UsageError(f"--budget must be a number of seconds greater than 0, got {given['budget']:g}")
    if given.get("steps", 1) < 1:
        raise UsageError(f"--steps must be at least 1, got {given['steps']}")
    from nearfar.api.choose import choose as rank

    names = [name.strip() for name in given["recipes"].split(",") if name.strip()] if "recipes" in given else None
    settings = {"encoder": given["encoder"], "seed": given["seed"], "device": given["device"]}
    found = rank(given["data"], given["budget"], names, out=given.get("out"), max_steps=given.get("steps"), **settings)
    print(found.to_json() if given.get("json") else found.render())
