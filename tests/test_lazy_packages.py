"""Packages whose names are imported when first used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import get_args

import pytest

import nearfar.core
import nearfar.recipes
from nearfar.cli.commands.ask import build_ask_parser
from nearfar.cli.commands.record import list_annotated_games
from nearfar.data.frames.atari_ram import ANNOTATED_GAMES
from nearfar.index.question_answering import RetrievalMode


@pytest.mark.parametrize("package", [nearfar.core, nearfar.recipes])
def test_all_names_can_be_imported_from_the_package(package):
    for name in package.__all__:
        value = getattr(package, name)
        assert value is getattr(importlib.import_module(package._WHERE[name]), name)
        assert vars(package)[name] is value, "looked up once"
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Missing'"):
        _ = package.Missing
    with pytest.raises(ImportError, match="cannot import name 'Missing'"):
        exec(f"from {package.__name__} import Missing")


@pytest.mark.slow
def test_importing_the_packages_and_their_light_names_leaves_torch_out():
    code = (
        "import sys, nearfar.core, nearfar.recipes\n"
        "from nearfar.core import Card, RuntimeConfig, TrainConfig, UsageError\n"
        "from nearfar.recipes import list_methods\n"
        "assert list_methods()\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)\n"
        "from nearfar.core import Recipe\n"
        "print('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False False\nTrue\n"


def test_values_that_commands_repeat_agree_with_the_library():
    """Commands name these values without importing the modules that define them."""
    assert tuple(list_annotated_games()) == ANNOTATED_GAMES
    for mode in get_args(RetrievalMode):
        given = build_ask_parser().parse_given_flags(["index", "question", "--how", mode])
        assert given["how"] == mode
