"""Flags that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from nearfar.cli import terminal
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.train.process_group import is_secondary_rank


def parse_flags(parser: FlagParser, argv: Sequence[str], positional: str | None = None) -> dict[str, Any]:
    """The flags given; -v and -q have taken effect."""
    given = parser.parse_given_flags(argv, positional)
    given["quiet"] = given.get("quiet", False) or is_secondary_rank()
    terminal.log_to_console(verbose=given.pop("verbose", False), quiet=given["quiet"])
    return given


def add_recipe_flag(parser: FlagParser) -> None:
    text = "the file of a recipe that is not nearfar's own; it is run. Given again for another: each run takes the one it was trained with."
    parser.add_argument("--recipe", action="append", metavar="FILE", help=text)


def add_device_flag(parser: FlagParser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N. Default: auto.")


def add_on_error_flag(parser: FlagParser) -> None:
    text = "stop at a sample that cannot be read, or leave it out. Default: as the run was told."
    parser.add_argument("--on-error", **get_argparse_options(Literal["stop", "skip"]), help=text)


def add_model_flags(parser: FlagParser) -> None:
    parser.add_argument("--run", dest="moved", metavar="RUN", help="where the run of the index lies now, if it was moved")
    add_device_flag(parser)
    add_recipe_flag(parser)
