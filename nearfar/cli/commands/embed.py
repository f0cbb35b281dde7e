"""Write one vector for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_device_flag, add_on_error_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError

GROUP = "Vectors and search"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar embed`."""
    parser = FlagParser("nearfar embed", "RUN --data DATA --out FILE", "Write one vector for each sample.")
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--data", required=True, metavar="DATA", help="data, as in `nearfar fit --data`")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="output file: .npy for vectors alone, .parquet for vectors with names and labels"
    )
    parser.add_argument(
        "--split", default="all", **get_argparse_options(Literal["train", "test", "all"]), help="samples to embed. Default: all."
    )
    parser.add_argument(
        "--engine",
        default="local",
        **get_argparse_options(Literal["local", "ray"]),
        help="ray: many processes, on this machine or on those of RAY_ADDRESS; same vectors; resumes where a killed command stopped. "
        "Default: local.",
    )
    add_on_error_flag(parser)
    parser.add_argument(
        "--num-workers", **get_argparse_options(int), help="number of processes of --engine ray. Default: as many as fit into the cluster."
    )
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.embed import embed
    from nearfar.api.load import load

    if "on_error" in given and given["engine"] == "ray":
        raise UsageError("--on-error is for --engine local: ray workers use the setting of the run")
    model = load(given["run"], given["device"], given.get("recipe")).with_on_error(given.get("on_error"))
    show = terminal.show_progress("embedding", given.get("quiet", False))
    spread = {"engine": given["engine"], "num_workers": given.get("num_workers")}
    n = embed(model, given["data"], given["out"], split=given["split"], **spread, progress=show)
    print(f"{given['out']}: {n:,} vectors")
