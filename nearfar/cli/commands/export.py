"""Export the encoder to onnx, torch, transformers or sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.cli.common_flags import add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser

GROUP = "Vectors and search"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar export`."""
    about = "Export the encoder to a folder that another library can load without nearfar."
    parser = FlagParser("nearfar export", "RUN --to LIBRARY --out FOLDER", about)
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--to", required=True, metavar="LIBRARY", help="target: onnx, torch, transformers or sentence-transformers")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="output folder")
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    from nearfar.api.load import load
    from nearfar.export import export_encoder

    print(export_encoder(load(given["run"], "cpu", given.get("recipe")), given["to"], given["out"]))
