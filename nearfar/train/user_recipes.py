"""User-defined recipes of trained runs.

This module finds the user's recipe that a run was trained with, and warns if its file has changed.

A run folder never makes code run. Its config.json states what the user must name again: a file (`recipe`),
the class in it and the SHA-256 of the file (`source`). The copy of the file in the folder is for readers
only.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearfar import recipes
from nearfar.core import Recipe, UsageError
from nearfar.recipes import Method
from nearfar.train.run_folder import RunFolder

logger = logging.getLogger("nearfar")
RecipeReference = str | os.PathLike | Recipe | type[Recipe]
"""Recipe as a user names it: its file, its class, or an object of the class."""
TrustedRecipes = RecipeReference | Sequence[RecipeReference] | None
"""Recipes that the user allows to run: one, several (for several runs), or none."""
MATCH_BY_PATH, MATCH_BY_CONTENT, MATCH_BY_NAME, MATCH_BY_CLASS = range(4)
"""Kinds of evidence that a recipe is the one that a run was trained with, the strongest first."""


def describe_source(method: Method) -> dict[str, Any]:
    """Return the class and the file hash of a user-defined recipe, for the config.

    The dict is empty for built-in recipes.
    """
    if not recipes.is_user_recipe(method.name):
        return {}
    return {
        "source": {
            "class": method.recipe_class.__name__,
            "sha256": None if method.source_bytes is None else compute_sha256(method.source_bytes),
        }
    }


def find_user_recipe(stored_config: Mapping[str, Any], source: str | os.PathLike, trusted: TrustedRecipes) -> Method:
    """Find the user-defined recipe that a run was trained with.

    Args:
        stored_config: content of the run's config.json.
        source: the run or its config.json.
        trusted: recipes that the user named.

    Raises:
        UsageError: if none of the named recipes matches, or if several match equally well.
    """
    wanted = _Wanted(stored_config)
    named = [trusted] if isinstance(trusted, (str, os.PathLike, Recipe, type)) else list(trusted or ())
    if not named:
        raise UsageError(f"{source} was trained with {wanted.described}: {wanted.how_to_name}")
    ranks = [wanted.rank(one) for one in named]
    best = min((r for r in ranks if r is not None), default=None)
    if best is None:
        given = ", ".join(_shown(one) for one in named)
        raise UsageError(f"{source} was trained with {wanted.described}, which {given} is not: {wanted.how_to_name}")
    chosen, *others = (one for one, r in zip(named, ranks, strict=True) if r == best)
    if others and best >= MATCH_BY_NAME:
        given = " and ".join(_shown(one) for one in (chosen, *others))
        raise UsageError(f"{source} was trained with {wanted.described}, which may be {given}: name only one of them")
    method = recipes.find_method(chosen) if isinstance(chosen, (Recipe, type)) else recipes.load_method(os.fspath(chosen))
    warn_if_recipe_changed(stored_config, source, method.name, method.source_bytes)
    return method


def warn_if_recipe_changed(stored_config: Mapping[str, Any], source: str | os.PathLike, name: str, text: bytes | None) -> None:
    """Warn if a recipe has changed since a run was trained with it.

    Args:
        stored_config: content of the run's config.json.
        source: the run or its config.json.
        name: name of the recipe.
        text: content of its file. None if it is unknown.
    """
    before = _Wanted(stored_config).sha256
    if before is None or (text is not None and compute_sha256(text) == before):
        return
    folder = Path(source).parent if Path(source).is_file() else Path(source)
    copy = RunFolder(folder).recipe_file
    where = f"; the copy is {copy}" if copy.is_file() else ""
    if text is None:
        logger.warning("%s: cannot verify that this recipe is the one that %s was trained with%s", name, folder, where)
    else:
        logger.warning("%s has changed since %s was trained%s", name, folder, where)


def warn_if_recipe_file_changed(stored_config: Mapping[str, Any], folder: Path) -> None:
    """Warn if the recipe file that the run names has changed.

    The file is not run.
    """
    file = Path(str(stored_config["recipe"]))
    if recipes.is_user_recipe(file.name) and file.is_file():
        warn_if_recipe_changed(stored_config, folder, str(file), file.read_bytes())


def compute_sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def _shown(named: RecipeReference) -> str:
    kind = type(named) if isinstance(named, Recipe) else named
    return kind.__name__ if isinstance(kind, type) else os.fspath(kind)


class _Wanted:
    """Recipe that a config asks for."""

    def __init__(self, stored_config: Mapping[str, Any]):
        self.name = str(stored_config["recipe"])
        found = stored_config.get("source")
        about = found if isinstance(found, Mapping) else {}
        self.has_file = not self.name.endswith(recipes.NO_FILE_SUFFIX)
        self.sha256 = about.get("sha256")
        self.class_name = about.get("class") or (None if self.has_file else self.name.removesuffix(recipes.NO_FILE_SUFFIX))

    @property
    def described(self) -> str:
        """Return a description of the recipe for error messages."""
        return f"a custom recipe, {self.name}" if self.has_file else f"{self.class_name}, a class with unknown source"

    @property
    def how_to_name(self) -> str:
        """Return advice on how the user can name the recipe."""
        if self.has_file:
            return "name that file again to run it, if you trust it (--recipe FILE; nearfar fit FILE --resume RUN)"
        return (
            f"pass it again (nearfar.load(RUN, recipe={self.class_name})), or name a file that defines it, if you trust it (--recipe FILE)"
        )

    def rank(self, named: RecipeReference) -> int | None:
        """Return the evidence that a named recipe is the wanted one.

        A lower number is stronger evidence. None means that it is another recipe.
        """
        if isinstance(named, (Recipe, type)):
            method = recipes.find_method(named)
            if self.class_name not in (None, method.recipe_class.__name__):
                return None
            if self.has_file and method.name.endswith(".py"):
                return self._rank_file(Path(method.name), method.source_bytes)
            return MATCH_BY_CLASS if self.class_name else None
        path = Path(named)
        if not path.is_file():
            raise UsageError(f"no such recipe file: {path}")
        if self.has_file:
            return self._rank_file(path, path.read_bytes())
        return MATCH_BY_CLASS if recipes.load_method(os.fspath(path)).recipe_class.__name__ == self.class_name else None

    def _rank_file(self, path: Path, text: bytes | None) -> int | None:
        """Return the evidence that a file is the wanted one.

        The path is equal, or the content, or the name if the original file is gone. None means that it is
        another file.
        """
        if os.path.realpath(path) == os.path.realpath(self.name):
            return MATCH_BY_PATH
        if text is not None and compute_sha256(text) == self.sha256:
            return MATCH_BY_CONTENT
        return MATCH_BY_NAME if path.name == Path(self.name).name and not os.path.isfile(self.name) else None
