"""Play a game at random and write down what happens: frames, sound and RAM, with nothing but a key to say which actions are taken.

Every episode has a key and an emulator of its own: it is the same whether or not the others are played. Actions are drawn uniformly
from those that the game knows, and with some probability the one before is kept instead ("sticky actions", Machado et al. 2018); each
lasts `SKIP` frames of the emulator, of the last two of which the brighter pixels are kept, since some games draw their objects in
turns; that is one frame of the recording. An episode begins with up to 30 frames in which nothing is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import MissingExtra, UsageError, did_you_mean
from nearfar.core.random_key import Key
from nearfar.data.frames.atari_ram import GAMES, variables_of
from nearfar.data.frames.readers import Recording, Writer, open_recording, writing

SKIP, STICKY, IDLE, LONGEST = 4, 0.25, 30, 27_000
"""Frames of the emulator a step; how often an action is kept; idle frames at the beginning, at most; steps of an episode, at most."""
HEIGHT, WIDTH, SAMPLES, RAM = 210, 160, 512, 128
_NOTHING = 0


def record(
    game: str, frames: int, to: str | os.PathLike, seed: int = 0, sticky: float = STICKY, progress: Callable[[int, int], None] | None = None
) -> Recording:
    """Record `frames` frames of a game. The same arguments and the same version of ale-py give the same bytes."""
    ale_py = _library()
    known = ale_py.roms.get_all_rom_ids()
    if game not in known:
        raise UsageError(f"unknown game {game!r}.{did_you_mean(game, known)} Annotated are {', '.join(GAMES)}; ale-py has {len(known)}")
    if frames < 1:
        raise UsageError(f"--frames must be at least 1, got {frames}")
    if not 0 <= sticky < 1:
        raise UsageError(f"--sticky is a probability, at least 0 and less than 1, got {sticky}")
    header = {
        "game": game, "variables": variables_of(game), "seed": seed, "frames_skipped": SKIP, "sticky": sticky,
        "height": HEIGHT, "width": WIDTH, "samples": SAMPLES, "ram": RAM, "emulator": f"ale-py {ale_py.__version__}",
    }  # fmt: skip
    with writing(to, header) as writer:
        while (done := sum(writer.episodes)) < frames:
            _play(ale_py, game, Key(seed)("game", game, "episode", len(writer.episodes)), frames - done, sticky, writer)
            if progress:
                progress(sum(writer.episodes), frames)
    return open_recording(Path(to))


def _play(ale_py: Any, game: str, key: Key, most: int, sticky: float, writer: Writer) -> None:
    """One episode, or its beginning if it is longer than `most` frames."""
    ale = emulator(ale_py, game, key)
    actions = ale.getMinimalActionSet()
    steps = np.arange(min(LONGEST, most))
    drawn, kept = key("action").integers(steps, len(actions)), key("keep").uniform(steps) < sticky
    writer.begin_episode()
    action = actions[_NOTHING]
    for _ in range(int(key("idle").integers(np.zeros(1, np.int64), IDLE + 1)[0])):
        ale.act(actions[_NOTHING])
    for step in steps:
        action = action if step and kept[step] else actions[drawn[step]]
        for _ in range(SKIP - 1):
            ale.act(action)
        before = ale.getScreenGrayscale()
        ale.act(action)
        if ale.game_over():
            return
        writer.add(np.maximum(before, ale.getScreenGrayscale()), ale.getAudio(), ale.getRAM())


def emulator(ale_py: Any, game: str, key: Key) -> Any:
    """A game that has just begun, silent on the terminal, with no chance of its own besides the key's."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", key("emulator").word >> 33)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setBool("sound_obs", True)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    ale.reset_game()
    return ale


def _library() -> Any:
    try:
        import ale_py
        import ale_py.roms
    except ImportError as e:
        raise MissingExtra("ale-py", "control", "recording games") from e
    return ale_py
