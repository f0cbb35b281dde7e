"""One file a method. The files are the registry: `recipes/vision/barlow_twins.py` is the method `barlow-twins`.

A recipe's file holds one `Recipe` subclass, whose defaults suit small data, and beside it `paper` (published settings: a
recipe and a run), `reported` (published numbers with their source) and `tiny` (seconds on a CPU, on data that ship with a
dependency).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nearfar.core import Recipe, Run, UsageError
from nearfar.core.errors import did_you_mean


@dataclass(frozen=True)
class Method:
    """What a recipe's file says: the class, its settings and its published numbers."""

    name: str
    recipe: type[Recipe]
    paper: tuple[Recipe, Run]
    tiny: tuple[Recipe, Run]
    reported: dict[str, Any]
    source: Path


def names() -> list[str]:
    """All methods, without importing any."""
    return sorted(_modules())


def method(name: str) -> Method:
    """The method of that name, or that a Python file of the user's own defines."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    modules = _modules()
    if name not in modules:
        raise UsageError(f"unknown recipe {name!r}.{did_you_mean(name, modules)} `nearfar list` shows all {len(modules)}")
    return _read(name, importlib.import_module(modules[name]))


def of(recipe: Recipe | type[Recipe]) -> Method:
    """The method whose file defines this recipe."""
    kind = recipe if isinstance(recipe, type) else type(recipe)
    for name, module in _modules().items():
        if module == kind.__module__:
            return method(name)
    return _read(inspect.getfile(kind), sys.modules[kind.__module__], kind)


def _modules() -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in pkgutil.iter_modules(__path__, f"{__name__}."):
        path = [str(Path(__path__[0]) / folder.name.rsplit(".", 1)[1])]
        for file in pkgutil.iter_modules(path, f"{folder.name}.") if folder.ispkg else ():
            found[file.name.rsplit(".", 1)[1].replace("_", "-")] = file.name
    return found


def _read(name: str, module: ModuleType, kind: type[Recipe] | None = None) -> Method:
    kinds = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Recipe) and v.__module__ == module.__name__]
    if kind is None and len(kinds) != 1:
        raise UsageError(f"{module.__file__} must define exactly one Recipe, it defines {[k.__name__ for k in kinds] or 'none'}")
    kind = kind or kinds[0]
    paper, tiny = getattr(module, "paper", (kind(), Run())), getattr(module, "tiny", (kind(), Run()))
    return Method(name, kind, paper, tiny, getattr(module, "reported", {}), Path(module.__file__ or "."))


def _from_file(path: Path) -> Method:
    if not path.is_file():
        raise UsageError(f"no such recipe file: {path}")
    spec = importlib.util.spec_from_file_location(f"nearfar_recipe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return _read(str(path), module)
