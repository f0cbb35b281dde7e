"""The commands that judge methods and runs: what one promises, several side by side, what ails one, which suits the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.commands import add_device, add_own_recipe, parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import NearfarError, UsageError


def compare(argv: Sequence[str]) -> None:
    about = (
        "Several runs in one table: results with their spread over seeds, cost, and the settings that differ. Results that "
        "`nearfar eval` left in a run's folder are used; what is missing is measured."
    )
    parser = Parser("nearfar compare", "RUN RUN … [--html FILE] [--json]", about)
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="folders that `nearfar fit` made; runs that differ only in the seed are one row"
    )
    parser.add_argument("--html", metavar="FILE", help="write the table and the figures as a page that a browser opens offline")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api.compare import compare_runs
    from nearfar.reports.comparison import write_comparison

    show = terminal.progress("embedding", given.get("quiet", False))
    found = compare_runs(given["runs"], device=given["device"], recipe=given.get("recipe"), progress=show)
    print(found.to_json() if given.get("json") else found.render())
    if "html" in given:
        write_comparison(given["html"], found)
    if found.differences:
        sys.stdout.flush()
        raise NearfarError(f"these numbers do not compare, they are only shown side by side: {'. '.join(found.differences)}")


def check(argv: Sequence[str]) -> None:
    about = "Whether a method of your own keeps what every method promises: on a few small runs, with what is wrong and what mends it."
    parser = Parser("nearfar check", "RECIPE [--data DATA] [--json]", about)
    parser.add_argument("recipe", metavar="RECIPE", help="a Python file of your own, or a name that `nearfar list` shows")
    parser.add_argument("--data", metavar="DATA", help="what `nearfar fit --data` takes. Default: that of the recipe's `tiny` settings.")
    parser.add_argument("--encoder", metavar="NAME", help="as in `nearfar fit`")
    parser.add_argument("--json", action="store_true", help="the promises as JSON")
    parser.add_common()
    given = parse_flags(parser, argv)
    if not {"-v", "--verbose"} & set(argv):
        terminal.console_logging(verbose=False, quiet=True)  # of a dozen small runs nobody wants to read
    from nearfar.api.check import check as ask

    show = terminal.progress("checking", given["quiet"])
    chosen = {"encoder": given["encoder"]} if "encoder" in given else {}
    found = ask(given["recipe"], given.get("data"), progress=show, **chosen)
    if given.get("json"):
        print(found.to_json())
    else:
        terminal.print_table(["", "promise", "found"], found.rows())
    if found.broken:
        sys.stdout.flush()
        raise NearfarError(f"{found.method} breaks {len(found.broken)} of {len(found.promises)} promises")


def diagnose(argv: Sequence[str]) -> None:
    about = "What is wrong with a run, measured, and what to try: collapse, false negatives, temperature, views, anisotropy, a leak."
    parser = Parser("nearfar diagnose", "RUN [--data DATA] [--json]", about)
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    parser.add_argument("--data", metavar="DATA", help="again, if the run was trained on an array")
    parser.add_argument("--json", action="store_true", help="findings and all measurements as JSON")
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api.diagnose import diagnose as examine
    from nearfar.api.fit import load

    found = examine(load(given["run"], given["device"], given.get("recipe")), given.get("data"))
    print(found.to_json() if given.get("json") else found.render())


def choose(argv: Sequence[str]) -> None:
    about = "Try several methods on your data for a given time and rank them without labels, by the geometry of what they learned."
    parser = Parser("nearfar choose", "--data DATA --budget SECONDS [--recipes A,B,C] [--out FOLDER] [--json]", about)
    parser.add_argument("--data", required=True, metavar="DATA", help="what `nearfar fit --data` takes")
    parser.add_argument("--budget", required=True, **value_of(float), help="seconds for all trials together")
    parser.add_argument("--recipes", metavar="A,B,C", help="methods to try. Default: a handful for the kind of data.")
    parser.add_argument("--out", metavar="FOLDER", help="keep the trials as runs in this folder. Default: they are forgotten.")
    parser.add_argument("--steps", **value_of(int), help="no method gets more steps than this, whatever the budget")
    parser.add_argument("--encoder", default="auto", metavar="NAME", help="as in `nearfar fit`, the same for all. Default: auto.")
    parser.add_argument("--seed", default=0, **value_of(int), help="names every random number. Default: 0.")
    parser.add_argument("--json", action="store_true", help="the ranking as JSON")
    add_device(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    if given["budget"] <= 0:
        raise UsageError(f"--budget is a number of seconds greater than 0, got {given['budget']:g}")
    if given.get("steps", 1) < 1:
        raise UsageError(f"--steps must be at least 1, got {given['steps']}")
    from nearfar.api.choose import choose as rank

    names = [name.strip() for name in given["recipes"].split(",") if name.strip()] if "recipes" in given else None
    settings = {"encoder": given["encoder"], "seed": given["seed"], "device": given["device"]}
    found = rank(given["data"], given["budget"], names, out=given.get("out"), most=given.get("steps"), **settings)
    print(found.to_json() if given.get("json") else found.render())
