"""From what a user asked for to a recipe, a run and a machine."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from nearfar import recipes
from nearfar.core import Machine, Recipe, Run, UsageError
from nearfar.core.configs import field_names
from nearfar.core.errors import did_you_mean
from nearfar.train.model import machine_of, recipe_of, run_of
from nearfar.train.run_folder import read_config


@dataclasses.dataclass(frozen=True)
class Settings:
    """A request, understood: the method's name and what to train it with."""

    name: str
    recipe: Recipe
    run: Run
    machine: Machine


def understand(
    recipe: str | Recipe | type[Recipe] | None, preset: str | None, config: str | os.PathLike | None, settings: dict[str, Any]
) -> Settings:
    """Preset or config first, then every single setting given, by its name: of the recipe, the run or the machine."""
    start = _from_config(config, recipe) if config else _from_preset(recipe, preset)
    if config and isinstance(recipe, str) and not recipe.endswith(".py") and recipe != start.name:
        raise UsageError(f"{config} is a run of {start.name!r}, not of {recipe!r}")
    parts = {"recipe": start.recipe, "run": start.run, "machine": start.machine}
    known = {name: part for part, value in parts.items() for name in field_names(type(value))}
    for name in settings:
        if name not in known:
            raise UsageError(f"{start.name} has no setting {name!r}.{did_you_mean(name, known)} Known: {', '.join(sorted(known))}")
    if settings.get("steps") is not None:
        settings = {"epochs": None, **settings}
    elif settings.get("epochs") is not None:
        settings = {"steps": None, **settings}
    settings = {name: _absolute(name, value) for name, value in settings.items()}
    changed = {part: {k: v for k, v in settings.items() if known[k] == part} for part in parts}
    found: dict[str, Any] = {part: dataclasses.replace(value, **changed[part]) for part, value in parts.items()}
    return Settings(start.name, found["recipe"], _with_tokenizer(found["run"], found["recipe"]), found["machine"])


def _with_tokenizer(run: Run, recipe: Recipe) -> Run:
    """A text tower with weights of its own reads its own tokens."""
    for name, part in recipe.towers.items():
        spec = getattr(recipe, name)
        if part == "text" and spec.startswith("hf:") and run.tokenizer == "auto":
            return dataclasses.replace(run, tokenizer=spec[3:])
    return run


def _from_preset(recipe: str | Recipe | type[Recipe] | None, preset: str | None) -> Settings:
    if recipe is None:
        raise UsageError("name a recipe, such as simclr; `nearfar list` shows all")
    method = recipes.method(recipe) if isinstance(recipe, str) else recipes.of(recipe)
    if preset not in (None, "tiny", "paper"):
        raise UsageError(f"preset {preset!r} is unknown: use 'tiny' or 'paper'")
    chosen, run = _preset(method, preset) if preset else (method.recipe(), Run())
    name = os.path.abspath(method.name) if method.name.endswith(".py") else method.name
    return Settings(name, recipe if isinstance(recipe, Recipe) else chosen, run, Machine())


def _preset(method: recipes.Method, preset: str) -> tuple[Recipe, Run]:
    """What the recipe's file says under that name. A file that says nothing is refused: defaults would pass for what was asked."""
    if not hasattr(sys.modules.get(method.recipe.__module__), preset):
        wanted = f"{preset} = {method.recipe.__name__}(…), Run(data=…)"
        raise UsageError(f"{method.name} has no {preset} = …: --{preset} needs a line {wanted} in it")
    return getattr(method, preset)


def _from_config(path: str | os.PathLike, recipe: Any) -> Settings:
    config = read_config(path)
    trusted = None if isinstance(recipe, str) and not recipe.endswith(".py") else recipe
    return Settings(config["recipe"], recipe_of(config, path, trusted), run_of(config, path), machine_of(config, path))


def _absolute(name: str, value: Any) -> Any:
    """Paths are kept whole, so that a run can be used from any folder."""
    if name in ("data", "init") and isinstance(value, str) and os.path.exists(os.path.expanduser(value)):
        return os.path.abspath(os.path.expanduser(value))
    if name in ("encoder", "text_encoder") and isinstance(value, str) and value.startswith("hf:") and os.path.isdir(value[3:]):
        return "hf:" + os.path.abspath(value[3:])
    return value
