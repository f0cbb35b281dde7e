"""State variables of Atari games in RAM, from the Atari Annotated RAM Interface.

Anand et al., "Unsupervised State Representation Learning in Atari", arXiv:1906.08226, found the variables in
the published source code of the games. A variable of several bytes becomes several numbered variables. The
name of a variable determines its categories (at least one). The published score of a game is the mean over
categories of the mean over the variables of each category.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_BYTES: dict[str, dict[str, int | Iterable[int]]] = {
    "boxing": {"player_x": 32, "player_y": 34, "enemy_x": 33, "enemy_y": 35, "enemy_score": 19, "clock": 17, "player_score": 18},
    "bowling": {
        "ball_x": 30, "ball_y": 41, "player_x": 29, "player_y": 40, "frame_number_display": 36, "pin_existence": range(57, 67), "score": 33,
    },
    "breakout": {"ball_x": 99, "ball_y": 101, "player_x": 72, "blocks_hit_count": 77, "block_bit_map": range(30), "score": 84},
    "demon_attack": {
        "level": 62, "player_x": 22, "enemy_x1": 17, "enemy_x2": 18, "enemy_x3": 19, "missile_y": 21, "enemy_y1": 69, "enemy_y2": 70,
        "enemy_y3": 71, "num_lives": 114,
    },
    "freeway": {"player_y": 14, "score": 103, "enemy_car_x": range(108, 118)},
    "ms_pacman": {
        "enemy_sue_x": 6, "enemy_inky_x": 7, "enemy_pinky_x": 8, "enemy_blinky_x": 9, "enemy_sue_y": 12, "enemy_inky_y": 13,
        "enemy_pinky_y": 14, "enemy_blinky_y": 15, "player_x": 10, "player_y": 16, "fruit_x": 11, "fruit_y": 17, "ghosts_count": 19,
        "player_direction": 56, "dots_eaten_count": 119, "player_score": 120, "num_lives": 123,
    },
    "pong": {
        "player_y": 51, "player_x": 46, "enemy_y": 50, "enemy_x": 45, "ball_x": 49, "ball_y": 54, "enemy_score": 13, "player_score": 14,
    },
    "qbert": {
        "player_x": 43, "player_y": 67, "player_column": 35, "red_enemy_column": 69, "green_enemy_column": 105, "score": (89, 90, 91),
        "tile_color": (21, 52, 54, 83, 85, 87, 98, 100, 102, 104, 1, 3, 5, 7, 9, 32, 34, 36, 38, 40, 42),
    },
    "seaquest": {
        "enemy_obstacle_x": range(30, 34), "player_x": 70, "player_y": 97, "diver_or_enemy_missile_x": range(71, 75),
        "player_direction": 86, "player_missile_direction": 87, "oxygen_meter_value": 102, "player_missile_x": 103, "score": (57, 58),
        "num_lives": 59, "divers_collected_count": 62,
    },
    "space_invaders": {
        "invaders_left_count": 17, "player_score": 104, "num_lives": 73, "player_x": 28, "enemies_x": 26, "missiles_y": 9, "enemies_y": 24,
    },
}  # fmt: skip

ANNOTATED_GAMES = tuple(_BYTES)
"""Games with annotated variables. Other games are recorded without variables."""


def get_variable_bytes(game: str) -> dict[str, int]:
    """Return the RAM byte of each variable of a game.

    The result is empty for games without annotations.
    """
    found: dict[str, int] = {}
    for name, place in _BYTES.get(game, {}).items():
        found |= {name: place} if isinstance(place, int) else {f"{name}_{i}": byte for i, byte in enumerate(place)}
    return found


def group_by_category(variables: Iterable[str]) -> dict[str, list[str]]:
    """Group variables by category. Empty categories are omitted.

    A variable can be in several categories. Variables without a category form the category "others".
    """
    variables = list(variables)
    found = {title: [name for name in variables if title in _get_categories(name)] for title in CATEGORIES}
    return {title: inside for title, inside in found.items() if inside}


def category_mean(values: Mapping[str, float]) -> float:
    """Compute the mean over categories of the means over their variables.

    With this mean, thirty blocks do not outweigh one ball.
    """
    means = [sum(values[name] for name in inside) / len(inside) for inside in group_by_category(values).values()]
    return sum(means) / len(means)


CATEGORIES = ("small objects", "agent", "other objects", "score and clock", "miscellaneous", "others")
"""Names of the categories, in the order of reports."""


def _get_categories(name: str) -> set[str]:
    has = lambda *words: any(word in name for word in words)
    titles: set[str] = set()
    if has("_x", "_y", "_z", "_column"):
        titles.add("small objects" if has("ball", "missile") else "agent" if has("agent", "player") else "other objects")
    if has("score", "clock", "lives", "lifes", "meter", "display"):
        titles.add("score and clock")
    if has("count", "bit_map", "existence", "level", "room", "game_state", "direction"):
        titles.add("miscellaneous")
    return titles or {"others"}
