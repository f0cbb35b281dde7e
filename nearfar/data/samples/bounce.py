"""Built-in game: a ball bounces between walls, and a bat moves at random below the ball.

The game is the same on every machine. The variables are the cell of the ball, across and down, and the cell
of the bat. Only the few pixels that move in front of a wall show these variables.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from nearfar.core.random_key import RandomKey
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.frames.dataset import Frames

NUM_EPISODES, FRAMES_PER_EPISODE, HEIGHT, WIDTH = 40, 40, 42, 32
BALL_SIZE, BAT_WIDTH, CELL_SIZE = 4, 8, 4
VARIABLES = ("ball_x", "ball_y", "player_x")


@lru_cache(maxsize=1)
def make_bounce() -> Frames:
    """Generate the frames of the game with their variables."""
    rng_key, rows = RandomKey(0)("bounce"), np.arange(NUM_EPISODES)
    lowest = HEIGHT - BALL_SIZE - 4
    start, speed = rng_key("start").uniform(rows, 3), rng_key("speed").integers(rows, 2, 2) + 1
    turned = np.where(rng_key("turned").uniform(rows, 2) < 0.5, -1, 1)
    steps = rng_key("bat").integers(rows, 7, FRAMES_PER_EPISODE) - 3
    time = np.arange(FRAMES_PER_EPISODE)
    ball_x = _reflected(start[:, 0, None] * (WIDTH - BALL_SIZE) + (turned * speed)[:, 0, None] * time, WIDTH - BALL_SIZE)
    ball_y = _reflected(start[:, 1, None] * lowest + (turned * speed)[:, 1, None] * time, lowest)
    bat_x = _reflected(start[:, 2, None] * (WIDTH - BAT_WIDTH) + np.cumsum(steps, axis=1), WIDTH - BAT_WIDTH)
    wall = (80 * rng_key("wall").uniform(np.arange(HEIGHT // 6), WIDTH // 8)).astype(np.uint8).repeat(6, axis=0).repeat(8, axis=1)
    frames = np.tile(wall, (NUM_EPISODES, FRAMES_PER_EPISODE, 1, 1))
    for e, t in np.ndindex(NUM_EPISODES, FRAMES_PER_EPISODE):
        frames[e, t, -3:-1, bat_x[e, t] : bat_x[e, t] + BAT_WIDTH] = 160
        frames[e, t, ball_y[e, t] : ball_y[e, t] + BALL_SIZE, ball_x[e, t] : ball_x[e, t] + BALL_SIZE] = 240
    pixels = torch.from_numpy(frames.reshape(-1, 1, HEIGHT, WIDTH))
    values = np.stack([ball_x, ball_y, bat_x], axis=2).reshape(-1, 3) // CELL_SIZE
    episode = np.repeat(rows, FRAMES_PER_EPISODE)
    return Frames(InMemoryImageStore(pixels), np.arange(len(pixels)), source="bounce", episode=episode, values=values, variables=VARIABLES)


def _reflected(at: np.ndarray, end: int) -> np.ndarray:
    """Return whole positions between 0 and `end` of an object that turns back there."""
    return (end - np.abs(at % (2 * end) - end)).round().astype(np.int64)
