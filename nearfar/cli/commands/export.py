"""Export the encoder to onnx, torch, transformers or sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli.common_flags import add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Vectors and search"


def run(argv: Sequence[str]) -> None:
    about = "Write the encoder into a folder that another library loads, without nearfar."
    parser = FlagParser("nearfar export", "RUN --to LIBRARY --out FOLDER", about)
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    parser.add_argument("--to", required=True, metavar="LIBRARY", help="onnx, torch, transformers or sentence-transformers")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make")
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.export import export_encoder
    from nearfar.train.model import load

    print(export_encoder(load(given["run"], "cpu", given.get("recipe")), given["to"], given["out"]))
