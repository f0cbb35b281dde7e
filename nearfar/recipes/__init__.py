"""One file a method. The files are the registry: `recipes/vision/barlow_twins.py` is the method `barlow-twins`.

A recipe's file holds one `Recipe` subclass, whose defaults suit small data, and beside it `paper` (published settings: a
recipe and a run), `reported` (published numbers with their source) and `tiny` (seconds on a CPU, on data that ship with a
dependency).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from nearfar.core import Recipe, TrainConfig, UsageError
from nearfar.core.errors import suggest_similar_names

NO_FILE_SUFFIX = " (no file)"
"""Follows the name of a class that was typed into a notebook or a shell, where a run names its recipe."""
_sibling_modules: set[str] = set()
"""Modules that recipe files imported from their own folders."""


@dataclass(frozen=True)
class Method:
    """What a recipe's file says: the class, its settings and its published numbers."""

    name: str
    recipe_class: type[Recipe]
    paper: tuple[Recipe, TrainConfig]
    tiny: tuple[Recipe, TrainConfig]
    reported: dict[str, Any]
    source_path: Path
    source_bytes: bytes | None = None
    """What a file of the user's own held when it was run; None for nearfar's own, and where no file is known."""


def list_methods() -> list[str]:
    """All methods, without importing any."""
    return sorted(_list_modules())


def load_method(name: str) -> Method:
    """The method of that name, or that a Python file of the user's own defines."""
    if name.endswith(".py"):
        return _load_from_file(Path(name))
    modules = _list_modules()
    if name not in modules:
        raise UsageError(f"unknown recipe {name!r}.{suggest_similar_names(name, modules)} `nearfar list` shows all {len(modules)}")
    module = importlib.import_module(modules[name])
    return _build_method(name, module, _get_only_recipe(module))


def is_user_recipe(name: str) -> bool:
    """Whether a recipe of this name is not one of nearfar's: a file, or a class without one."""
    return name.endswith((".py", NO_FILE_SUFFIX))


def find_method(recipe: Recipe | type[Recipe]) -> Method:
    """The method whose file defines this recipe; named by its class where no file does (a notebook, a shell)."""
    kind = recipe if isinstance(recipe, type) else type(recipe)
    for name, module in _list_modules().items():
        if module == kind.__module__:
            return load_method(name)
    module = sys.modules.get(kind.__module__)
    loader = getattr(module, "__loader__", None)
    if isinstance(loader, _UserFileLoader):
        return _build_method(loader.path, module, kind, loader.text)
    file = _find_file(kind)
    return (
        _build_method(file, module, kind, Path(file).read_bytes())
        if file
        else _build_method(f"{kind.__name__}{NO_FILE_SUFFIX}", module, kind)
    )


def _find_file(recipe_class: type[Recipe]) -> str | None:
    try:
        file = inspect.getfile(recipe_class)
    except (OSError, TypeError):  # what Python says of a class that was typed in
        return None
    return os.path.abspath(file) if file.endswith(".py") and os.path.isfile(file) else None


def _list_modules() -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in pkgutil.iter_modules(__path__, f"{__name__}."):
        path = [str(Path(__path__[0]) / folder.name.rsplit(".", 1)[1])]
        for file in pkgutil.iter_modules(path, f"{folder.name}.") if folder.ispkg else ():
            found[file.name.rsplit(".", 1)[1].replace("_", "-")] = file.name
    return found


def _get_only_recipe(module: ModuleType) -> type[Recipe]:
    kinds = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Recipe) and v.__module__ == module.__name__]
    if len(kinds) != 1:
        raise UsageError(f"{module.__file__} must define exactly one Recipe, it defines {[k.__name__ for k in kinds] or 'none'}")
    return kinds[0]


def _build_method(name: str, module: ModuleType | None, recipe_class: type[Recipe], source_bytes: bytes | None = None) -> Method:
    paper, tiny = getattr(module, "paper", (recipe_class(), TrainConfig())), getattr(module, "tiny", (recipe_class(), TrainConfig()))
    return Method(
        name, recipe_class, paper, tiny, getattr(module, "reported", {}), Path(getattr(module, "__file__", None) or "."), source_bytes
    )


class _UserFileLoader(SourceFileLoader):
    """Runs what was read, and nothing that was compiled earlier: `text` is what the recipe does, whatever is in the file by now."""

    def __init__(self, name: str, path: str, text: bytes):
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str):
        return self.source_to_code(self.text, self.path)


def _load_from_file(path: Path) -> Method:
    if not path.is_file():
        raise UsageError(f"no such recipe file: {path}")
    file, text = os.path.abspath(path), path.read_bytes()
    mark = hashlib.sha256(file.encode() + text).hexdigest()[:12]  # files of the same name, or of another day, must not meet
    name = f"nearfar_recipe_{path.stem}_{mark}"
    loader = _UserFileLoader(name, file, text)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _allow_imports_from(os.path.dirname(file)):
        loader.exec_module(module)
    return _build_method(str(path), module, _get_only_recipe(module), text)


@contextlib.contextmanager
def _allow_imports_from(folder: str) -> Iterator[None]:
    """Within the block, modules that lie in the folder can be imported: those of this folder, as they are now, and not those of the same
    names that an earlier recipe file imported."""
    for name in _sibling_modules:
        sys.modules.pop(name, None)
    _sibling_modules.clear()
    before = set(sys.modules)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        _sibling_modules.update(
            name for name in set(sys.modules) - before if name.split(".")[0] not in before and _is_in_folder(folder, name)
        )


def _is_in_folder(folder: str, name: str) -> bool:
    """Whether a module, or the package that it is of, lies in the folder itself: an environment may lie further down."""
    top = os.path.join(folder, name.split(".")[0])
    file = getattr(sys.modules[name], "__file__", None) or ""
    return file == f"{top}.py" or file.startswith(top + os.sep)
