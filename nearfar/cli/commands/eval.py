"""Measure a run against its untrained encoder and simple baselines."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options

GROUP = "Results"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar eval`."""
    about = (
        "Measure a run on its test split, next to the untrained encoder and simple baselines (raw pixels, counted words, BM25, …).\n"
        "Images, texts, sounds, graphs: probes, neighbors, geometry. Questions: retrieval. Triples: link prediction. Words: similarity."
    )
    parser = FlagParser("nearfar eval", "RUN [--data DATA] [--json]", about)
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--data", metavar="DATA", help="data, as in `nearfar fit --data`. Default: the data of the run.")
    parser.add_argument("--json", action="store_true", help="print the numbers and their protocol as JSON")
    parser.add_argument("--k", **get_argparse_options(int), help="number of neighbors of the kNN classifier. Default: 20.")
    parser.add_argument(
        "--per-class", **get_argparse_options(int), help="labeled samples for each class in the few-label probe. Default: 5."
    )
    parser.add_argument("--C", **get_argparse_options(float), help="inverse regularization strength of the probes. Default: 1.")
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.evaluate import evaluate_model
    from nearfar.train.model import load

    model = load(given["run"], given["device"], given.get("recipe"))
    protocol = {name: given[name] for name in ("k", "per_class", "C") if name in given}
    progress = terminal.show_progress("embedding", given.get("quiet", False))
    table = evaluate_model(model, given.get("data"), progress=progress, **protocol)
    if "data" not in given and not protocol:
        from nearfar.evaluate.stored_results import store_results

        store_results(model, table)
    print(table.to_json().rstrip() if given.get("json") else table.render())
