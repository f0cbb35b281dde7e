"""Names that are data: strings in the paths of random keys and names of tensors in checkpoints.

A random key hashes its strings into the numbers, and a checkpoint finds its tensors by name: another name would change numbers or
make checkpoints unreadable. Add new names to tests/pinned_names.json; never change one.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers import tiny_session

from nearfar import recipes

ROOT = Path(__file__).resolve().parent.parent
PINNED = Path(__file__).with_name("pinned_names.json")
OF_A_KEY = re.compile(r"(^|[._(])_?(rng_key|RandomKey\(.*\))$", re.DOTALL)


def key_paths() -> dict[str, int]:
    """Return how often each path of strings is given to a random key in the package."""
    found: Counter[str] = Counter()
    for path in (ROOT / "nearfar").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and OF_A_KEY.search(ast.unparse(node.func)):
                words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                found.update(["/".join(words)] if words else [])
    return dict(sorted(found.items()))


def test_strings_of_random_keys_are_unchanged():
    assert key_paths() == json.loads(PINNED.read_text())["random keys"]


@pytest.mark.parametrize("name", recipes.list_methods())
def test_names_of_tensors_are_unchanged(name):
    assert list(tiny_session(name).net.state_dict()) == json.loads(PINNED.read_text())["tensors"][name]
