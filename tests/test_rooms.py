"""The rooms' arrows: a room imports only from rooms above it."""

from __future__ import annotations

import ast
from pathlib import Path

import nearfar

ROOMS = ["core", "scores", "losses", "data", "similarity", "encoders", "heads", "recipes", "train", "evaluate", "index", "app"]
APP = {"modalities", "reports", "export", "api", "server", "cli"}
"""Packages that count as one room for now."""
ROOT = Path(nearfar.__file__).parent


def one_room(name: str) -> str:
    return "app" if name in APP else name


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def test_rooms_import_only_from_rooms_above_them():
    against = []
    for path in ROOT.glob("*/**/*.py"):
        room = one_room(path.relative_to(ROOT).parts[0])
        for line, name in imports(path):
            parts = name.split(".")
            if (
                parts[0] == "nearfar"
                and len(parts) > 1
                and one_room(parts[1]) in ROOMS
                and ROOMS.index(one_room(parts[1])) > ROOMS.index(room)
            ):
                against.append(f"{path}:{line}: {room} imports {parts[1]}")
    assert not against, "\n".join(against)


def test_every_room_is_known():
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert {one_room(name) for name in folders} <= set(ROOMS)
