"""Recorder of randomly played games: frames, sound and RAM.

A random key alone determines the actions. Each episode has its own random key and its own emulator, so an
episode is the same whether or not the others are played. Actions are drawn uniformly from the actions of the
game. With some probability the previous action is kept instead ("sticky actions", Machado et al. 2018).

Each action lasts `FRAME_SKIP` emulator frames. The pixel-wise maximum of the last two becomes one frame of
the recording, because some games draw their objects alternately. An episode begins with up to 30 idle frames.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import MissingExtra, UsageError, suggest_similar_names
from nearfar.core.random_key import RandomKey
from nearfar.data.frames.atari_ram import ANNOTATED_GAMES, get_variable_bytes
from nearfar.data.frames.readers import Recording, RecordingWriter, create_recording, open_recording

FRAME_SKIP, STICKY_PROBABILITY, MAX_IDLE_FRAMES, MAX_EPISODE_STEPS = 4, 0.25, 30, 27_000
"""Emulator frames per step, sticky probability, maximum idle frames, and maximum steps of an episode.

The idle frames are at the beginning of an episode.
"""
SCREEN_HEIGHT, SCREEN_WIDTH, AUDIO_BYTES_PER_FRAME, RAM_BYTES = 210, 160, 512, 128
"""Sizes of a frame: height and width in pixels, bytes of sound, bytes of RAM."""
_NOOP_ACTION = 0


def record_game(
    game: str,
    num_frames: int,
    path: str | os.PathLike,
    seed: int = 0,
    sticky_probability: float = STICKY_PROBABILITY,
    progress: Callable[[int, int], None] | None = None,
) -> Recording:
    """Record `num_frames` frames of a randomly played game.

    The same arguments and the same version of ale-py give the same bytes.

    Args:
        game: name of the game in ale-py.
        num_frames: number of frames over all episodes.
        path: file to write.
        seed: random seed.
        sticky_probability: probability to repeat the previous action, in [0, 1).
        progress: function of (frames done, frames in total).

    Raises:
        UsageError: unknown game, or a value out of range.
    """
    ale_py = _import_ale()
    known = ale_py.roms.get_all_rom_ids()
    if game not in known:
        raise UsageError(
            f"unknown game {game!r}.{suggest_similar_names(game, known)} "
            f"Annotated games: {', '.join(ANNOTATED_GAMES)}; ale-py has {len(known)} games"
        )
    if num_frames < 1:
        raise UsageError(f"--frames must be at least 1, got {num_frames}")
    if not 0 <= sticky_probability < 1:
        raise UsageError(f"--sticky must be a probability, at least 0 and less than 1, got {sticky_probability}")
    header = {
        "game": game, "variables": get_variable_bytes(game), "seed": seed, "frames_skipped": FRAME_SKIP, "sticky": sticky_probability,
        "height": SCREEN_HEIGHT, "width": SCREEN_WIDTH, "samples": AUDIO_BYTES_PER_FRAME, "ram": RAM_BYTES,
        "emulator": f"ale-py {ale_py.__version__}",
    }  # fmt: skip
    with create_recording(path, header) as writer:
        while (done := sum(writer.episode_lengths)) < num_frames:
            _play_episode(
                ale_py,
                game,
                RandomKey(seed)("game", game, "episode", len(writer.episode_lengths)),
                num_frames - done,
                sticky_probability,
                writer,
            )
            if progress:
                progress(sum(writer.episode_lengths), num_frames)
    return open_recording(Path(path))


def _play_episode(ale_py: Any, game: str, rng_key: RandomKey, max_frames: int, sticky_probability: float, writer: RecordingWriter) -> None:
    """Play and record one episode.

    At most `max_frames` frames are recorded.
    """
    ale = start_emulator(ale_py, game, rng_key)
    actions = ale.getMinimalActionSet()
    steps = np.arange(min(MAX_EPISODE_STEPS, max_frames))
    drawn, kept = rng_key("action").integers(steps, len(actions)), rng_key("keep").uniform(steps) < sticky_probability
    writer.begin_episode()
    action = actions[_NOOP_ACTION]
    for _ in range(int(rng_key("idle").integers(np.zeros(1, np.int64), MAX_IDLE_FRAMES + 1)[0])):
        ale.act(actions[_NOOP_ACTION])
    for step in steps:
        action = action if step and kept[step] else actions[drawn[step]]
        for _ in range(FRAME_SKIP - 1):
            ale.act(action)
        before = ale.getScreenGrayscale()
        ale.act(action)
        if ale.game_over():
            return
        writer.add_frame(np.maximum(before, ale.getScreenGrayscale()), ale.getAudio(), ale.getRAM())


def start_emulator(ale_py: Any, game: str, rng_key: RandomKey) -> Any:
    """Start a game in a new emulator without terminal output.

    The random key is the only source of randomness.
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", rng_key("emulator").hash_value >> 33)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setBool("sound_obs", True)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    ale.reset_game()
    return ale


def _import_ale() -> Any:
    try:
        import ale_py
        import ale_py.roms
    except ImportError as e:
        raise MissingExtra("ale-py", "control", "recording games") from e
    return ale_py
