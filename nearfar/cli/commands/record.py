"""Play a game at random and record its frames, sound and memory."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError
from nearfar.core.files import resolve_writable_path
from nearfar.core.python_source import PACKAGE_FOLDER, evaluate_literal, get_assigned_values, parse_file

GROUP = "Data"
RECORD_EXAMPLES = """examples:
  nearfar record pong --frames 50000 --to pong.games           about a minute, 5 MB
  nearfar fit st-dim --data pong.games --out run               learn from it
  nearfar eval run                                             which variables of the game's memory the vectors tell"""


def run(argv: Sequence[str]) -> None:
    """Run `nearfar record`."""
    about = (
        "Play an Atari game at random and write down every fourth frame with its sound and the emulator's RAM, in one file that is read "
        "from any place.\nThe same seed gives the same file. `nearfar fit st-dim --data FILE` learns from the frames; RAM is to evaluate."
    )
    parser = FlagParser("nearfar record", "GAME --frames N --to FILE.games", about, RECORD_EXAMPLES)
    known = f"{', '.join(list_annotated_games())}: their variables in RAM are named; or another game of ale-py, which has none"
    parser.add_argument("game", metavar="GAME", help=known)
    parser.add_argument("--frames", default=50_000, **get_argparse_options(int), help="number of frames to write. Default: 50000.")
    parser.add_argument("--to", required=True, metavar="FILE", help="output file; its name ends in .games")
    parser.add_argument("--seed", default=0, **get_argparse_options(int), help="random seed. Default: 0.")
    parser.add_argument(
        "--sticky", default=0.25, **get_argparse_options(float), help="probability of repeating the last action. Default: 0.25."
    )
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    if not given["to"].endswith(".games"):
        raise UsageError(f"--to {given['to']}: name a file that ends in .games")
    target = resolve_writable_path(given["to"])
    from nearfar.data.frames.game_recorder import record_game as play

    quiet = given.get("quiet", False)
    made = play(given["game"], given["frames"], target, given["seed"], given["sticky"], terminal.show_progress("playing", quiet))
    print(f"{target}: {len(made):,} frames, {len(made.episode_lengths)} episodes, {target.stat().st_size:,} bytes")
    if not quiet:
        print(f"Next: `nearfar fit st-dim --data {shlex.quote(str(target))} --out RUN`", file=sys.stderr)


def list_annotated_games() -> list[str]:
    """Read the names of annotated games from their file, which would import torch."""
    table = get_assigned_values(parse_file(PACKAGE_FOLDER / "data" / "frames" / "atari_ram.py").body)["_BYTES"]
    assert isinstance(table, ast.Dict)
    return [evaluate_literal(game) for game in table.keys if game is not None]
