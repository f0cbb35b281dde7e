"""Suites of `nearfar eval`: one file for each. The files are the registry.

A file's docstring begins with the purpose of the suite in one line. It defines one of two things:

COLUMNS, KEY                       columns of the result table of a run (regular expressions). The suite applies
                                   if the table has a column that matches KEY
explain_skip(subject), measure(subject)
                                   the reason why the suite does not apply (empty if it does), and its rows
"""

from __future__ import annotations

import ast
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from nearfar.core.errors import UsageError, suggest_similar_names


@cache
def list_suites() -> dict[str, str]:
    """Return the purpose of each suite by name, read from the files without an import."""
    files = [Path(__path__[0]) / f"{module.name}.py" for module in pkgutil.iter_modules(__path__)]
    return {file.stem: (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n")[0] for file in files}


def load_suite(name: str) -> ModuleType:
    """Return the module of a suite.

    Raises:
        UsageError: if there is no such suite.
    """
    known = list_suites()
    if name not in known:
        raise UsageError(f"--suite: there is no suite {name!r}.{suggest_similar_names(name, known)} Known: {', '.join(known)}")
    return import_module(f"{__name__}.{name}")
