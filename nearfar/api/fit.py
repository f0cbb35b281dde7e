"""Training functions: `fit` and `resume`.

The command line is a thin layer over them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

import torch

from nearfar import recipes
from nearfar.api.load import load
from nearfar.api.settings import ResolvedSettings, resolve_settings
from nearfar.core import NearfarError, Recipe, RuntimeConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.core.ranks import get_rank, is_set_on_any_rank
from nearfar.data import Splits, Tokenizer
from nearfar.data.common.image_stores import hash_bytes
from nearfar.evaluate.training_hooks import CollapseWatch, KnnWatch
from nearfar.modalities import find_modality
from nearfar.recipes import Method
from nearfar.reports.model_card import remove_model_card, write_model_card
from nearfar.train import checkpoint
from nearfar.train.config_check import check_config
from nearfar.train.model import InitSource, Model, get_field, load_init_source, read_recipe, read_runtime_config, read_train_config
from nearfar.train.model_data import get_training_data_source
from nearfar.train.process_group import check_ranks_agree, join_process_group
from nearfar.train.run_folder import RunFolder
from nearfar.train.runner import run_training
from nearfar.train.session import TrainingSession, pick_device
from nearfar.train.training_loop import Hook, check_hooks
from nearfar.train.user_recipes import TrustedRecipes, describe_source
from nearfar.version import __version__

logger = logging.getLogger("nearfar")


@join_process_group()
def fit(
    recipe: str | Recipe | type[Recipe] | None = None,
    data: Any = None,
    *,
    preset: str | None = None,
    config_file: str | os.PathLike | None = None,
    out: str | os.PathLike | None = None,
    overwrite: bool = False,
    hooks: Sequence[Hook] = (),
    progress: ProgressCallback | None = None,
    **settings: Any,
) -> Model:
    """Train a recipe and return the trained model.

    Args:
        recipe: a name (`nearfar list`), a Recipe object or class, or a path to a file that defines one.
        data: as in `--data`, or an array of images, a pair (images, labels), or a torch dataset.
        preset: "tiny" or "paper", the settings in the recipe's file.
        config_file: a config.json of an earlier run, to repeat that run.
        out: the run folder. Without it nothing is written.
        overwrite: replace the run in `out`.
        hooks: called after every step (`nearfar.train.training_loop.Hook`). Only rank 0 calls them under
            torchrun.
        progress: called while data are read.
        settings: any field of the recipe, of `TrainConfig` or of `RuntimeConfig`.

    Raises:
        UsageError: if no data are given, or if a setting is unknown.
    """
    check_hooks(hooks)
    if isinstance(data, (str, os.PathLike)):
        settings["data"] = os.fspath(data)
        data = None
    chosen = resolve_settings(recipe, preset, config_file, settings)
    if data is None and not chosen.config.data:
        raise UsageError("no data given: --data DATA, or --tiny for a bundled dataset")
    config = chosen.config
    init_source = load_init_source(config.init_from) if config.init_from else None
    modality = find_modality(chosen.recipe.card.modality)
    modality.check_settings(settings, type(chosen.recipe).__name__)
    inputs = modality.build_inputs(tokenizer=init_source.tokenizer if init_source else None)
    splits = inputs.load_splits(config.data if data is None else data, config, progress=progress)
    return _begin(chosen, splits, init_source, out, overwrite, hooks)


def _begin(
    chosen: ResolvedSettings,
    splits: Splits,
    init_source: InitSource | None,
    out: str | os.PathLike | None,
    overwrite: bool,
    hooks: Sequence[Hook],
) -> Model:
    if init_source is not None and chosen.config.encoder == "auto":
        chosen = dataclasses.replace(chosen, config=dataclasses.replace(chosen.config, encoder=init_source.config.encoder))
    session = _session(chosen.recipe, chosen.config, chosen.runtime, splits, init_source)
    check_ranks_agree(session.net, **_known(session, splits))
    if out is None or get_rank() > 0:
        return _train(session, splits, hooks, None, {})
    with RunFolder.create(out, overwrite) as folder:
        remove_model_card(folder)
        method = recipes.find_method(session.recipe)
        stored_config = _config(method, session, splits)
        folder.write_split(splits.test_ids)
        folder.write_tokenizer(_tokenizer(splits))
        folder.write_config(stored_config)
        folder.write_recipe(method.source_bytes)
        return _train(session, splits, hooks, folder, stored_config)


@join_process_group()
def resume(
    path: str | os.PathLike,
    data: Any = None,
    *,
    recipe: TrustedRecipes = None,
    accept_changes: bool = False,
    hooks: Sequence[Hook] = (),
    progress: ProgressCallback | None = None,
) -> Model:
    """Continue a run from its newest good checkpoint, or from the start if it has none.

    Args:
        path: the run folder.
        data: the same data again, if the run was trained on an array.
        recipe: the file or the class of a recipe that does not come with nearfar.
        accept_changes: continue with the values of config.json even if the newest checkpoint was written with
            others.
        hooks: called after every step, as in `fit`.
        progress: called while data are read.

    Raises:
        UsageError: if config.json differs from the config of the newest checkpoint.
        NearfarError: if another process trains in the folder, or if the data have changed.
    """
    check_hooks(hooks)
    folder = RunFolder.open(path)
    with folder.lock() if get_rank() == 0 else contextlib.nullcontext():
        is_set_on_any_rank(False)  # no rank reads the folder before rank 0 holds the lock
        stored_config = folder.read_config()
        found = checkpoint.find_newest_checkpoint(folder.checkpoints_folder)
        check_config(folder, stored_config, found, accept_changes)
        steps = get_field(stored_config, "train_config.steps", int, folder.path)
        if found is not None and found.step >= steps:
            logger.info("%s is finished: all %d steps are done", folder.path, steps)
            return load(folder.path, read_runtime_config(stored_config, folder.path).device, recipe)
        if get_rank() == 0:
            checkpoint.clean_checkpoints(folder.checkpoints_folder, found.step if found else -1)
        return _continue(folder, stored_config, found, data, read_recipe(stored_config, folder.path, recipe), hooks, progress)


def _continue(
    folder: RunFolder,
    stored_config: dict[str, Any],
    found: checkpoint.Checkpoint | None,
    data: Any,
    method: Recipe,
    hooks: Sequence[Hook],
    progress: ProgressCallback | None,
) -> Model:
    """Open the data of a run, restore its state and train to its end.

    Rank 0 holds the lock.
    """
    config, runtime = read_train_config(stored_config, folder.path), read_runtime_config(stored_config, folder.path)
    source = get_training_data_source(config, folder) if data is None else data
    inputs = find_modality(method.card.modality).build_inputs(tokenizer=folder.read_tokenizer())
    splits = inputs.load_splits(source, config, folder.read_split(), progress)
    _check_data(splits, method, stored_config, folder, config.data or source)
    init_source = load_init_source(config.init_from) if config.init_from and found is None else None
    session = _session(method, config, runtime, splits, init_source)
    if found is not None:
        found.load_into(session.net, session.optimizers)
        session.step = found.step
    check_ranks_agree(session.net, **_known(session, splits))
    if get_rank() > 0:
        return _train(session, splits, hooks, None, {})
    folder.rewind_metrics(session.step)
    logger.info("continuing %s at step %d of %d", folder.path, session.step, session.steps)
    return _train(session, splits, hooks, folder, stored_config)


def _check_data(splits: Splits, method: Recipe, stored_config: dict[str, Any], folder: RunFolder, source: Any) -> None:
    """Raise if the samples or labels are not those that the run was trained on."""
    if splits.train.fingerprint != get_field(stored_config, "data.fingerprint", str, folder.path):
        raise NearfarError(f"the data at {source} are not those that {folder.path} was trained on: they have changed")
    labels = hash_labels(method, splits)
    if labels != stored_config["data"].get("taught", labels):
        raise NearfarError(f"the labels at {source} are not those that {folder.path} was trained with: they have changed")


def _session(recipe: Recipe, run: Any, runtime: RuntimeConfig, splits: Splits, init_source: InitSource | None) -> TrainingSession:
    data = splits.train if recipe.uses_labels else splits.train.drop_labels()
    return TrainingSession(recipe, run, runtime, data, pick_device(runtime.device), init_source.tensors if init_source else None)


def hash_labels(recipe: Recipe, splits: Splits) -> str:
    """Return a hash of the labels and scores that a recipe learns from.

    The result is empty if the recipe uses no labels.
    """
    if not recipe.uses_labels:
        return ""
    told = [x for x in (getattr(splits.train, name, None) for name in ("labels", "scores")) if x is not None]
    return hash_bytes("\n".join(splits.train.classes).encode(), *(x.tobytes() for x in told))


def _known(session: TrainingSession, splits: Splits) -> dict[str, str]:
    """Return the values that must be equal on all ranks, besides the weights."""
    return {
        "versions": f"nearfar {__version__}, torch {torch.__version__}",
        "settings": repr((session.recipe, session.config, session.runtime, session.step)),
        "data": f"{splits.train.fingerprint} {hash_labels(session.recipe, splits)} {len(session.data)}",
    }


def _train(
    session: TrainingSession, splits: Splits, hooks: Sequence[Hook], folder: RunFolder | None, stored_config: dict[str, Any]
) -> Model:
    metrics: list[dict[str, Any]] = folder.read_metrics() if folder else []
    session.metric_recorders.append(metrics.append)
    run_training(session, hooks, _watchers(session, splits), folder, stored_config)
    modality = find_modality(session.recipe.card.modality)
    told = (_tokenizer(splits), splits.test_ids, splits.train.fingerprint)
    model = Model(session.recipe, session.config, session.net, session.step, session.device, modality, folder, metrics, *told)
    write_model_card(model)
    return model


def _tokenizer(splits: Splits) -> Tokenizer | None:
    return getattr(splits.train, "tokenizer", None)


def _watchers(session: TrainingSession, splits: Splits) -> list[Hook]:
    """Return the hooks that measure while the model trains, on rank 0."""
    if get_rank() > 0:
        return []
    every = session.runtime.eval_every
    if every and splits.test is not None and splits.test.labels is not None:
        return [CollapseWatch(), KnnWatch(every, splits.train, splits.test)]
    if every:
        logger.warning("--eval-every needs a labeled test split, and there is none: the run is not evaluated while it trains")
    return [CollapseWatch()]


def _config(method: Method, session: TrainingSession, splits: Splits) -> dict[str, Any]:
    """Return the configuration of a run.

    It holds all values that are needed to repeat the run. The session has already replaced every default by
    its number.
    """
    return {
        "nearfar": __version__,
        "torch": torch.__version__,
        "recipe": method.name,
        **describe_source(method),
        "hyperparameters": dataclasses.asdict(session.recipe),
        "train_config": dataclasses.asdict(session.config),
        "runtime_config": dataclasses.asdict(session.runtime),
        "data": {
            "fingerprint": splits.train.fingerprint,
            "taught": hash_labels(session.recipe, splits),
            "train": len(splits.train),
            "test": len(splits.test) if splits.test is not None else 0,
            "skipped": list(splits.train.skipped),
        },
        "sizes": dict(session.sizes),
    }
