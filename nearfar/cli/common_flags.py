"""Flags that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from nearfar.cli import terminal
from nearfar.cli.flags import FlagParser, get_argparse_options


def parse_flags(parser: FlagParser, argv: Sequence[str], positional: str | None = None) -> dict[str, Any]:
    """Parse the flags and apply -v and -q to the console log.

    Args:
        parser: the parser of the command.
        argv: the words after the command.
        positional: a word of argv that the caller has already parsed.

    Returns:
        The given flags by name, and `quiet`.
    """
    given = parser.parse_given_flags(argv, positional)
    given["quiet"] = given.get("quiet", False) or _is_secondary_rank()
    terminal.log_to_console(verbose=given.pop("verbose", False), quiet=given["quiet"])
    return given


def _is_secondary_rank() -> bool:
    """Return True for all ranks but the first. Torch is imported only if there are several."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return False
    from nearfar.train.process_group import is_secondary_rank

    return is_secondary_rank()


def add_recipe_flag(parser: FlagParser) -> None:
    """Add the flag --recipe."""
    text = "file of a custom recipe; its code is run. Repeat the flag for several recipes: each run uses the one it was trained with."
    parser.add_argument("--recipe", action="append", metavar="FILE", help=text)


def add_device_flag(parser: FlagParser) -> None:
    """Add the flag --device."""
    parser.add_argument("--device", default="auto", metavar="NAME", help="device: auto, cpu, cuda or cuda:N. Default: auto.")


def add_on_error_flag(parser: FlagParser) -> None:
    """Add the flag --on-error."""
    text = "stop at a sample that cannot be read, or skip it. Default: as in the run's config."
    parser.add_argument("--on-error", **get_argparse_options(Literal["stop", "skip"]), help=text)


def add_model_flags(parser: FlagParser) -> None:
    """Add the flags --run, --device and --recipe of commands that load the model of an index."""
    parser.add_argument("--run", dest="moved", metavar="RUN", help="folder of the index's run, if it was moved")
    add_device_flag(parser)
    add_recipe_flag(parser)
