"""Modalities: one file for each kind of data. The files are the registry.

To add a modality, add a file to this folder. `image_text.py` holds the modality "image-text".
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import ModuleType

from nearfar.core import UsageError
from nearfar.core.errors import suggest_similar_names
from nearfar.core.modality import Evaluation, Modality

__all__ = ["Evaluation", "Modality", "find_modality", "list_modalities"]


def list_modalities() -> list[str]:
    """Return the names of all modalities, sorted."""
    return sorted(_load_all())


def find_modality(name: str) -> Modality:
    """Return the modality of a name, such as "image".

    Raises:
        UsageError: if there is no such modality.
    """
    found = _load_file(name.replace("-", "_"))
    if found is not None and found.name == name:
        return found
    known = list_modalities()
    if name not in known:
        raise UsageError(f"unsupported modality {name!r}.{suggest_similar_names(name, known)} Choose one of {', '.join(known)}")
    return _load_all()[name]


@cache
def _load_all() -> dict[str, Modality]:
    files = [file.name for file in pkgutil.iter_modules(__path__)]
    found = [modality for file in files if (modality := _load_file(file)) is not None]
    return {modality.name: modality for modality in found}


@cache
def _load_file(file: str) -> Modality | None:
    """Return the modality that a file defines, or None for a file of shared parts."""
    if file not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    defined = _list_modality_classes(import_module(f"{__name__}.{file}"))
    return defined[0]() if defined else None


def _list_modality_classes(module: ModuleType) -> list[type[Modality]]:
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Modality)]
    return [kind for kind in classes if kind.__module__ == module.__name__ and not isabstract(kind) and "name" in vars(kind)]
