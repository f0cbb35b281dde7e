"""Registry of methods: the class, the settings and the published numbers that a recipe file defines."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from nearfar.core import Recipe, TrainConfig, UsageError
from nearfar.recipes.recipe_files import list_recipe_modules, raise_unknown_recipe

NO_FILE_SUFFIX = " (no file)"
"""Suffix of the method name of a class that was typed into a notebook or a shell."""
_sibling_modules: set[str] = set()
"""Modules that recipe files imported from their own folders."""


@dataclass(frozen=True)
class Method:
    """Content of a recipe file: the class, its settings and its published numbers."""

    name: str
    recipe_class: type[Recipe]
    paper: tuple[Recipe, TrainConfig]
    tiny: tuple[Recipe, TrainConfig]
    reported: dict[str, Any]
    source_path: Path
    source_bytes: bytes | None = None
    """Content of a user's recipe file when it was loaded. None for nearfar's own recipes and for classes
    without a file."""


def load_method(name: str) -> Method:
    """Return the method of this name, or the method that a user's Python file defines.

    Args:
        name: the name of a method, such as "simclr", or the path of a .py file.

    Raises:
        UsageError: if the method or the file does not exist, or if the file does not define
            exactly one `Recipe`.
    """
    if name.endswith(".py"):
        return _load_from_file(Path(name))
    modules = list_recipe_modules()
    if name not in modules:
        raise_unknown_recipe(name)
    module = importlib.import_module(modules[name])
    return _build_method(name, module, _get_only_recipe(module))


def is_user_recipe(name: str) -> bool:
    """Return True if this name is a user's file or a class without a file."""
    return name.endswith((".py", NO_FILE_SUFFIX))


def find_method(recipe: Recipe | type[Recipe]) -> Method:
    """Return the method whose file defines this recipe.

    A class without a file (from a notebook or a shell) gives a method that is named after the class.
    """
    kind = recipe if isinstance(recipe, type) else type(recipe)
    for name, module in list_recipe_modules().items():
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
    except (OSError, TypeError):  # Python raises these for a class that was typed in
        return None
    return os.path.abspath(file) if file.endswith(".py") and os.path.isfile(file) else None


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
    """Loader that runs the bytes it was given.

    The loader ignores compiled caches and later changes of the file: `text` is the source of the recipe.
    """

    def __init__(self, name: str, path: str, text: bytes):
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str):
        return self.source_to_code(self.text, self.path)


def _load_from_file(path: Path) -> Method:
    if not path.is_file():
        raise UsageError(f"no such recipe file: {path}")
    file, text = os.path.abspath(path), path.read_bytes()
    # The hash separates files of the same name and versions of the same file.
    mark = hashlib.sha256(file.encode() + text).hexdigest()[:12]
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
    """Allow imports from this folder within the block.

    Modules of the folder are imported as they are now. Modules of the same names that an earlier recipe file
    imported are dropped first.
    """
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
    """Return True if a module, or its top-level package, lies directly in the folder.

    Modules further down do not count: a virtual environment may lie there.
    """
    top = os.path.join(folder, name.split(".")[0])
    file = getattr(sys.modules[name], "__file__", None) or ""
    return file == f"{top}.py" or file.startswith(top + os.sep)
