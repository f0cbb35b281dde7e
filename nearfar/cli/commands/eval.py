"""Measure a run or an index: probes, neighbors, clustering, robustness and more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options

GROUP = "Results"


def build_eval_parser() -> FlagParser:
    """Build the flag parser of `nearfar eval`."""
    from nearfar.api.suites import list_suites

    about = (
        "Measure a run on its test split, next to the untrained encoder and simple baselines, or the vectors of an index.\n"
        "Without --suite, the suites of the modality's own evaluation run. Without labels, those that need none."
    )
    purposes = list_suites()
    width = max(map(len, purposes))
    listing = "\n".join(f"  {name:{width}}  {purpose}" for name, purpose in purposes.items())
    parser = FlagParser("nearfar eval", "THING [--suite NAME] [--data DATA] [--json]", about, f"suites:\n{listing}")
    parser.add_argument("thing", metavar="THING", help="run folder, or index folder")
    parser.add_argument("--suite", action="append", metavar="NAME", help="suite to run; repeat the flag for several")
    parser.add_argument("--data", metavar="DATA", help="data to measure on. Default: the data of the run. sts, senteval, words: a folder.")
    parser.add_argument("--json", action="store_true", help="print one JSON object: {protocol, rows}")
    parser.add_argument("--k", **get_argparse_options(int), help="number of neighbors of the kNN classifier. Default: 20.")
    parser.add_argument(
        "--per-class", **get_argparse_options(int), help="labeled samples for each class in the few-label probe. Default: 5."
    )
    parser.add_argument("--C", **get_argparse_options(float), help="inverse regularization strength of the probes. Default: 1.")
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    return parser


def run(argv: Sequence[str]) -> None:
    """Run `nearfar eval`."""
    given = parse_flags(build_eval_parser(), argv)
    from nearfar.api.run_suites import run_suites

    names = given.get("suite", [])
    subject = open_subject(given)
    report = run_suites(subject, names)
    if not names:
        store_run_results(subject, given)
    if given.get("json"):
        print(report.to_json())
    else:
        print(report.render() if report.table is None else report.table.render())


def is_index_folder(path: str) -> bool:
    """Return True if a folder holds an index, not a run."""
    folder = Path(path)
    return (folder / "manifest.json").is_file() and not (folder / "config.json").exists()


def open_subject(given: dict[str, Any]) -> Any:
    """Open the run or index that the flags name."""
    from nearfar.cli import terminal
    from nearfar.core.errors import UsageError

    protocol = {name: given[name] for name in ("k", "per_class", "C") if name in given}
    if is_index_folder(given["thing"]):
        from nearfar.api.index_subject import IndexSubject
        from nearfar.index import open_index

        if unused := [f"--{name}" for name in ("data", "recipe", *protocol) if name in given]:
            raise UsageError(f"{', '.join(unused)} is for runs: {given['thing']} is an index, which has its own vectors")
        return IndexSubject(open_index(given["thing"]))
    from nearfar.api.load import load
    from nearfar.api.suite_subject import RunSubject

    model = load(given["thing"], given["device"], given.get("recipe"))
    return RunSubject(model, given.get("data"), terminal.show_progress("embedding", given.get("quiet", False)), **protocol)


def store_run_results(subject: Any, given: dict[str, Any]) -> None:
    """Store the results of a run on its own data, measured with the default protocol."""
    if subject.model is None or any(name in given for name in ("data", "k", "per_class", "C")):
        return
    from nearfar.evaluate.stored_results import store_results
    from nearfar.reports.model_card import write_model_card

    store_results(subject.model, subject.table)
    write_model_card(subject.model, subject.table)
