"""A trained method in the hand: load a run, encode samples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar import recipes
from nearfar.core import NearfarError, Net, Recipe, Run, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.data import as_images
from nearfar.train import checkpoint
from nearfar.train.encode import encode_all
from nearfar.train.folder import RunFolder
from nearfar.train.session import build_net, pick_device


@dataclasses.dataclass
class Trained:
    """A recipe with its trained net. `encode` is all that most users need."""

    recipe: Recipe
    run: Run
    net: Net
    step: int
    device: torch.device
    folder: RunFolder | None = None
    metrics: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def encode(self, images: Any, batch: int = 512, progress: Callable[[int, int], None] | None = None) -> Float[Tensor, "n d"]:
        """The representations of images: an opened data set, or anything `as_images` takes; scaled to the run's size."""
        data = as_images(images, channels=self.net.sizes["channels"], size=self.net.sizes["size"])
        return encode_all(self.recipe, self.net, data, self.device, batch, progress)

    def untrained(self) -> Trained:
        """The same net before its first step."""
        net = build_net(self.recipe, self.run, self.net.sizes).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])


def load(path: str | os.PathLike, device: str = "auto") -> Trained:
    """A run from its folder, as its newest good checkpoint left it."""
    folder = RunFolder.open(path)
    config = folder.config()
    found = checkpoint.newest(folder.checkpoints)
    if found is None:
        raise NearfarError(f"{folder.path} has no checkpoint yet: `nearfar fit --resume {folder.path}` goes on with it")
    recipe, run = recipe_of(config), run_of(config)
    where = pick_device(device)
    net = build_net(recipe, run, config["sizes"]).to(where)
    found.load(net)
    net.eval()
    return Trained(recipe, run, net, found.step, where, folder, folder.metrics())


def recipe_of(config: dict[str, Any]) -> Recipe:
    """The recipe that a config names, with its hyperparameters."""
    kind = recipes.method(config["recipe"]).recipe
    return fill(kind, config["hyper"], f"hyperparameter of {config['recipe']}")


def run_of(config: dict[str, Any]) -> Run:
    return fill(Run, config["run"], "setting of a run")


def fill(kind: type, values: dict[str, Any], what: str) -> Any:
    """A dataclass from plain values; an unknown name is an error that says which are known."""
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise UsageError(f"{name!r} is no {what}.{did_you_mean(name, known)} Known: {', '.join(known)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
