"""Recipes: one file for each method. The files are the registry.

The name of a method comes from its file: `recipes/vision/barlow_twins.py` is the method `barlow-twins`. The
file holds one `Recipe` subclass. Its defaults suit small datasets. The file also holds `paper` (the published
settings: a recipe and a training configuration), `reported` (published numbers with their source) and `tiny`
(settings that run in seconds on a CPU, on a dataset bundled with a dependency).

`registry` imports recipe files. `method_summary` reads them without importing them, so that `nearfar list` does
not wait for torch. Names of this package are imported when first used, for the same reason.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearfar.recipes.recipe_files import list_methods
    from nearfar.recipes.registry import NO_FILE_SUFFIX, Method, find_method, is_user_recipe, load_method

__all__ = ["NO_FILE_SUFFIX", "Method", "find_method", "is_user_recipe", "list_methods", "load_method"]

_WHERE = {
    "list_methods": "nearfar.recipes.recipe_files",
    **dict.fromkeys(["NO_FILE_SUFFIX", "Method", "find_method", "is_user_recipe", "load_method"], "nearfar.recipes.registry"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'nearfar.recipes' has no attribute {name!r}")
    found = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = found
    return found
