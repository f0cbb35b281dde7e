"""Files of recipes and their names. Nothing is imported."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from nearfar.core.errors import UsageError, suggest_similar_names

RECIPES_FOLDER = Path(__file__).parent


def list_recipe_files() -> dict[str, Path]:
    """Return the recipe file of each method."""
    folders = [init.parent for init in sorted(RECIPES_FOLDER.glob("*/__init__.py"))]
    files = [file for folder in folders for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]
    return {file.stem.replace("_", "-"): file for file in files}


def list_recipe_modules() -> dict[str, str]:
    """Return the module name of each method's recipe file."""
    return {name: f"nearfar.recipes.{file.parent.name}.{file.stem}" for name, file in list_recipe_files().items()}


def list_methods() -> list[str]:
    """Return the names of all methods, sorted, without importing the recipes."""
    return sorted(list_recipe_files())


def raise_unknown_recipe(name: str) -> NoReturn:
    """Raise the `UsageError` of an unknown method name, with similar names."""
    known = list_methods()
    raise UsageError(f"unknown recipe {name!r}.{suggest_similar_names(name, known)} `nearfar list` shows all {len(known)}")
