"""Small sessions of any recipe, for tests."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar import recipes
from nearfar.core import Recipe, RuntimeConfig, TrainConfig
from nearfar.core.modality import MODALITY_SETTINGS
from nearfar.data import Splits, load_images
from nearfar.modalities import find_modality
from nearfar.train.checkpoint import find_newest_checkpoint
from nearfar.train.loader import StepDataset
from nearfar.train.session import TrainingSession


@functools.lru_cache(maxsize=4)
def opened(spec: str, seed: int = 0) -> Splits:
    return load_images(spec, seed=seed)


def opened_for(recipe: type[Recipe], config: TrainConfig) -> Splits:
    """Return the data of a recipe. Recipes with the same data settings share one opened dataset."""
    names = ("data", "seed", "on_error", *MODALITY_SETTINGS)
    return _opened_with(recipe.card.modality, TrainConfig(**{name: getattr(config, name) for name in names}))


@functools.cache  # tests walk over all recipes again and again; their tiny data are small
def _opened_with(modality: str, config: TrainConfig) -> Splits:
    return find_modality(modality).build_inputs().load_splits(config.data, config)


def tiny_data(name: str) -> Splits:
    recipe, config = recipes.load_method(name).tiny
    return opened_for(type(recipe), config)


def exactly(recipe: Recipe) -> Recipe:
    """The recipe with row-wise norms in its heads and without dropout, so that chunks and ranks are exact."""
    exact = {"norm": "layer", "dropout": 0.0}
    return dataclasses.replace(recipe, **{name: value for name, value in exact.items() if hasattr(recipe, name)})


def batch_for(name: str, wanted: int) -> int:
    """Rows a step: of a recipe that embeds all rows at once (a whole graph), as many as its tiny settings have."""
    method = recipes.load_method(name)
    return wanted if method.recipe_class.rowwise else min(wanted, method.tiny[1].batch_size or wanted)


def tiny_session(
    name: str, exact: bool = False, runtime: RuntimeConfig | None = None, splits: Splits | None = None, **changes: Any
) -> TrainingSession:
    """A session of the recipe's tiny settings; `exact`: without any batch statistics or dropout; `splits`: its tiny data, opened."""
    recipe, config = recipes.load_method(name).tiny
    if exact:
        recipe = exactly(recipe)
        by_modality = {"image": "convnet-gn", "image-text": "convnet-gn", "graphs": "gin-3x16-ln"}
        changes = {"encoder": by_modality.get(recipe.card.modality, config.encoder), **changes}
    if "batch_size" in changes:
        changes["batch_size"] = batch_for(name, changes["batch_size"])
    splits = splits or tiny_data(name)
    config = dataclasses.replace(config, **changes)
    data = splits.train if recipe.uses_labels else splits.train.drop_labels()
    return TrainingSession(recipe, config, runtime or RuntimeConfig(), data, torch.device("cpu"))


def gradients(session: TrainingSession, step: int = 0, chunk_size: int | None = None) -> dict[str, Tensor]:
    """The gradient of every turn's parameters at a step."""
    similarity = session.similarity()
    steps = StepDataset(session.data, similarity, session.plan, session.rng_key("read"), chunk_size)
    found = {}
    for i, grad_step in enumerate(session.grad_steps):
        session.net.zero_grad()
        grad_step(similarity, steps[step], steps.get_row_chunks(step), step)
        found |= {f"{i}.{n}": p.grad.to_dense().clone() for n, p in session.net.named_parameters() if p.grad is not None}
    return found


def stored(run: Path) -> dict[str, Tensor]:
    """Every tensor of a run's newest checkpoint: net and optimizers."""
    from safetensors.torch import load_file

    found = find_newest_checkpoint(run / "checkpoints")
    assert found is not None
    return {f"{file.name}:{k}": v for file in sorted(found.folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def assert_same_tensors(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    assert a, "nothing to compare"
    different = [k for k in a if not torch.equal(a[k], b[k])]
    assert not different, f"differ: {different}"


def largest_relative_error(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest gradient of all: small gradients are differences of large terms."""
    assert a.keys() == b.keys()
    scale = max(float(v.double().abs().max()) for v in a.values())  # truth values are numbers too
    return max(float((a[k].double() - b[k].double()).abs().max()) for k in a) / scale


class DiskLog:
    """Record of what `os` flushes and renames, in order. The real functions are called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.flushed: dict[Path, int] = {}
        self.events: list[tuple[str, Path]] = []
        self.real_fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, functools.partial(self._rename, getattr(os, name)))

    def _fsync(self, handle: int) -> None:
        self.real_fsync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        self.flushed[path] = os.fstat(handle).st_size
        self.events.append(("flushed", path))

    def _rename(self, real: Any, source: str | Path, target: str | Path) -> None:
        source, target = Path(source).resolve(), Path(target).resolve()
        written = [source, *source.iterdir()] if source.is_dir() else [source]
        unflushed = [str(path) for path in written if self.flushed.get(path) != path.stat().st_size]
        assert not unflushed, f"renamed to {target} before being flushed: {unflushed}"
        real(source, target)
        if source in self.flushed:
            self.flushed[target] = self.flushed.pop(source)
        self.events.append(("renamed", target))

    def assert_flushed_around_rename(self, target: Path) -> None:
        """Assert that the target was renamed, which asserts that it was flushed, and that its folder was flushed after that."""
        target = target.resolve()
        assert ("renamed", target) in self.events
        after = self.events[self.events.index(("renamed", target)) :]
        assert ("flushed", target.parent) in after, f"the folder {target.parent} is not flushed after the rename"
