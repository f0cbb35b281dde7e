"""`nearfar record`: a game played at random, as a file to learn from."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.commands import parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import UsageError
from nearfar.core.files import writable_target

EXAMPLES = """examples:
  nearfar record pong --frames 50000 --to pong.games           about a minute, 5 MB
  nearfar fit st-dim --data pong.games --out run               learn from it
  nearfar eval run                                             which variables of the game's memory the vectors tell"""


def record(argv: Sequence[str]) -> None:
    from nearfar.data.frames.atari_ram import GAMES

    about = (
        "Play an Atari game at random and write down every fourth frame with its sound and the emulator's RAM, in one file that is read "
        "from any place.\nThe same seed gives the same file. `nearfar fit st-dim --data FILE` learns from the frames; RAM is to evaluate."
    )
    parser = Parser("nearfar record", "GAME --frames N --to FILE.games", about, EXAMPLES)
    known = f"{', '.join(GAMES)}: their variables in RAM are named; or another game of ale-py, which has none"
    parser.add_argument("game", metavar="GAME", help=known)
    parser.add_argument("--frames", default=50_000, **value_of(int), help="how many frames to write. Default: 50000.")
    parser.add_argument("--to", required=True, metavar="FILE", help="the file to make; its name ends in .games")
    parser.add_argument("--seed", default=0, **value_of(int), help="names every action. Default: 0.")
    parser.add_argument("--sticky", default=0.25, **value_of(float), help="how often an action is kept for another step. Default: 0.25.")
    parser.add_common()
    given = parse_flags(parser, argv)
    if not given["to"].endswith(".games"):
        raise UsageError(f"--to {given['to']}: name a file that ends in .games, so that it is known for what it is")
    target = writable_target(given["to"])
    from nearfar.data.frames.play import record as play

    quiet = given.get("quiet", False)
    made = play(given["game"], given["frames"], target, given["seed"], given["sticky"], terminal.progress("playing", quiet))
    print(f"{target}: {len(made):,} frames, {len(made.episodes)} episodes, {target.stat().st_size:,} bytes")
    if not quiet:
        print(f"Next: `nearfar fit st-dim --data {shlex.quote(str(target))} --out RUN`", file=sys.stderr)
