"""Resolution of user settings into a recipe, a train config and a runtime config."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from nearfar import recipes
from nearfar.core import Recipe, RuntimeConfig, TrainConfig, UsageError
from nearfar.core.configs import get_field_names
from nearfar.core.errors import suggest_similar_names
from nearfar.train.model import read_recipe, read_runtime_config, read_train_config
from nearfar.train.run_folder import read_config


@dataclasses.dataclass(frozen=True)
class ResolvedSettings:
    """Resolved request: the method's name and its training settings."""

    name: str
    recipe: Recipe
    config: TrainConfig
    runtime: RuntimeConfig


def resolve_settings(
    recipe: str | Recipe | type[Recipe] | None, preset: str | None, config: str | os.PathLike | None, settings: dict[str, Any]
) -> ResolvedSettings:
    """Resolve a preset or config file first, then apply each given setting by its name.

    A setting belongs to the recipe, the train config or the runtime config.

    Raises:
        UsageError: if a setting or the preset is unknown, or if the config is of another recipe.
    """
    start = _from_config(config, recipe) if config else _from_preset(recipe, preset)
    if config and isinstance(recipe, str) and not recipe.endswith(".py") and recipe != start.name:
        raise UsageError(f"{config} is a run of {start.name!r}, not of {recipe!r}")
    parts = {"recipe": start.recipe, "train config": start.config, "runtime config": start.runtime}
    known = {name: part for part, value in parts.items() for name in get_field_names(type(value))}
    for name in settings:
        if name not in known:
            raise UsageError(f"{start.name} has no setting {name!r}.{suggest_similar_names(name, known)} Known: {', '.join(sorted(known))}")
    if settings.get("steps") is not None:
        settings = {"epochs": None, **settings}
    elif settings.get("epochs") is not None:
        settings = {"steps": None, **settings}
    settings = {name: _absolute(name, value) for name, value in settings.items()}
    changed = {part: {k: v for k, v in settings.items() if known[k] == part} for part in parts}
    found: dict[str, Any] = {part: dataclasses.replace(value, **changed[part]) for part, value in parts.items()}
    return ResolvedSettings(start.name, found["recipe"], _with_tokenizer(found["train config"], found["recipe"]), found["runtime config"])


def _with_tokenizer(config: TrainConfig, recipe: Recipe) -> TrainConfig:
    """Set the tokenizer of a pretrained text tower.

    Such a tower needs its own tokens.
    """
    for name, part in recipe.towers.items():
        spec = getattr(recipe, name)
        if part == "text" and spec.startswith("hf:") and config.tokenizer == "auto":
            return dataclasses.replace(config, tokenizer=spec[3:])
    return config


def _from_preset(recipe: str | Recipe | type[Recipe] | None, preset: str | None) -> ResolvedSettings:
    if recipe is None:
        raise UsageError("name a recipe, such as simclr; `nearfar list` shows all")
    method = recipes.load_method(recipe) if isinstance(recipe, str) else recipes.find_method(recipe)
    if preset not in (None, "tiny", "paper"):
        raise UsageError(f"preset {preset!r} is unknown: use 'tiny' or 'paper'")
    chosen, config = _preset(method, preset) if preset else (method.recipe_class(), TrainConfig())
    name = os.path.abspath(method.name) if method.name.endswith(".py") else method.name
    return ResolvedSettings(name, recipe if isinstance(recipe, Recipe) else chosen, config, RuntimeConfig())


def _preset(method: recipes.Method, preset: str) -> tuple[Recipe, TrainConfig]:
    """Return the preset in the recipe's file.

    Raise if the file does not define it. Otherwise the defaults would be used instead of the requested
    preset.
    """
    if not hasattr(sys.modules.get(method.recipe_class.__module__), preset):
        wanted = f"{preset} = {method.recipe_class.__name__}(…), TrainConfig(data=…)"
        raise UsageError(f"{method.name} has no {preset} = …: --{preset} needs a line {wanted} in it")
    return getattr(method, preset)


def _from_config(path: str | os.PathLike, recipe: Any) -> ResolvedSettings:
    stored_config = read_config(path)
    trusted = None if isinstance(recipe, str) and not recipe.endswith(".py") else recipe
    return ResolvedSettings(
        stored_config["recipe"],
        read_recipe(stored_config, path, trusted),
        read_train_config(stored_config, path),
        read_runtime_config(stored_config, path),
    )


def _absolute(name: str, value: Any) -> Any:
    """Make paths absolute, so that a run works from any folder."""
    if name in ("data", "init_from") and isinstance(value, str) and os.path.exists(os.path.expanduser(value)):
        return os.path.abspath(os.path.expanduser(value))
    if name in ("encoder", "text_encoder") and isinstance(value, str) and value.startswith("hf:") and os.path.isdir(value[3:]):
        return "hf:" + os.path.abspath(value[3:])
    return value
