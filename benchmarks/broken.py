"""Trainings that are broken on purpose, one fault each, and healthy ones: what `nearfar diagnose` is measured and tested on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor

from nearfar import recipes
from nearfar.api.fit import fit
from nearfar.core import Embeddings, Net, RandomKey, Recipe
from nearfar.losses import alignment
from nearfar.recipes.language.simcse_unsup import SimCSEUnsupervised
from nearfar.recipes.vision.barlow_twins import BarlowTwins
from nearfar.recipes.vision.byol import BYOL
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.similarity import Compose, Crop, ImageViews, Rotate
from nearfar.train.model import Model

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class AlignmentAlone(SimCLR):
    """Nothing pushes samples apart."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return alignment(z["z0"], z["z1"])


def slight_turns(net: Net) -> ImageViews:
    return ImageViews.repeat(Compose(Rotate(3.0)))


def crumbs(net: Net) -> ImageViews:
    return ImageViews.repeat(Compose(Crop(net.sizes["size"], scale=(0.015, 0.03)), Rotate(180.0)))


@dataclass(frozen=True)
class WeakSimCLR(SimCLR):
    def similarity(self, net: Net) -> ImageViews:
        return slight_turns(net)


@dataclass(frozen=True)
class WeakBarlow(BarlowTwins):
    def similarity(self, net: Net) -> ImageViews:
        return slight_turns(net)


@dataclass(frozen=True)
class StrongSimCLR(SimCLR):
    def similarity(self, net: Net) -> ImageViews:
        return crumbs(net)


@dataclass(frozen=True)
class StrongBarlow(BarlowTwins):
    def similarity(self, net: Net) -> ImageViews:
        return crumbs(net)


def shifted(h: Tensor) -> Tensor:
    """Features with a common direction, three times as long as they are themselves."""
    return h + 3 * h.norm(dim=1).mean() * h.shape[1] ** -0.5


@dataclass(frozen=True)
class ShiftedBarlow(BarlowTwins):
    """Its loss centres every dimension, and does not see a constant."""

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return shifted(net.encoder(x))


@dataclass(frozen=True)
class ShiftedSimCLR(SimCLR):
    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return shifted(net.encoder(x))


def digits(seed: int) -> Arrays:
    """The digits with a split of their own, as an .npz holds them."""
    found: Any = load_digits()
    images, labels = (found.images * (255 / 16)).round().astype(np.uint8), found.target.astype(np.int64)
    order = RandomKey(seed)("broken").permutation(len(images))
    train, test = order[:1400], order[1400:]
    return {"x_train": images[train], "y_train": labels[train], "x_test": images[test], "y_test": labels[test]}


def eight_copies(seed: int) -> Arrays:
    found = digits(seed)
    return found | {name: np.concatenate([found[name][:175]] * 8) for name in ("x_train", "y_train")}


def two_classes(seed: int) -> Arrays:
    found = digits(seed)
    kept = {part: found[f"y_{part}"] < 2 for part in ("train", "test")}
    return {name: value[kept[name[2:]]] for name, value in found.items()}


def leaking(seed: int) -> Arrays:
    """One in ten test images is among the training images, a little brighter or darker here and there."""
    found = digits(seed)
    noise = RandomKey(seed)("noise").integers(np.arange(40), 7, 8, 8) - 3
    copies = np.clip(found["x_test"][:40].astype(np.int64) + noise, 0, 255).astype(np.uint8)
    return found | {
        "x_train": np.concatenate([found["x_train"][40:], copies]),
        "y_train": np.concatenate([found["y_train"][40:], found["y_test"][:40]]),
    }


@dataclass(frozen=True)
class Case:
    """`expected`: the name of the finding; empty for a healthy run."""

    recipe: Recipe
    expected: str = ""
    data: str | Callable[[int], Arrays] = "digits"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def train(self, folder: Path, seed: int, steps: int, batch_size: int) -> tuple[Model, str]:
        """The trained run and its data."""
        data = self.data
        if callable(data):
            data = str(folder / "data.npz")
            np.savez(data, **self.data(seed))  # type: ignore[operator]
        settings = {"lr": 2e-3, "steps": steps, "batch_size": batch_size, **self.settings}
        return fit(self.recipe, data, seed=seed, **settings), data


TEXT = {"encoder": "bert-tiny", "vocab_size": 2048, "max_length": 16, "lr": 5e-4}
BARLOW = {"dim": 256, "redundancy_weight": 2e-2}

FAULTS = {
    "alignment alone": Case(AlignmentAlone(), "collapse"),
    "BYOL without batch norm": Case(BYOL(norm="layer", dim=128, hidden_dim=256), "collapse", settings={"encoder": "convnet-gn"}),
    "Barlow Twins, lambda 0.00001": Case(BarlowTwins(dim=256, redundancy_weight=1e-5), "dimensional collapse"),
    "SimCLR, eight copies of each image": Case(SimCLR(), "false negatives", eight_copies),
    "MoCo v2, eight copies of each image": Case(MoCoV2(queue_size=512), "false negatives", eight_copies),
    "SimCLR, two classes": Case(SimCLR(), "false negatives", two_classes),
    "SimCLR, tau 0.005": Case(SimCLR(temperature=0.005), "temperature too low"),
    "SimCLR, tau 0.02": Case(SimCLR(temperature=0.02), "temperature too low"),
    "MoCo v2, tau 0.005": Case(MoCoV2(queue_size=512, temperature=0.005), "temperature too low"),
    "SimCLR, tau 10": Case(SimCLR(temperature=10.0), "temperature too high"),
    "MoCo v2, tau 10": Case(MoCoV2(queue_size=512, temperature=10.0), "temperature too high"),
    "SimCLR, turns by 3 degrees": Case(WeakSimCLR(), "views too weak"),
    "Barlow Twins, turns by 3 degrees": Case(WeakBarlow(**BARLOW), "views too weak"),
    "SimCSE without dropout": Case(SimCSEUnsupervised(pooling="mean", dropout=0.0), "views too weak", "docstrings", TEXT),
    "SimCLR, crumbs": Case(StrongSimCLR(), "views too strong"),
    "Barlow Twins, crumbs": Case(StrongBarlow(**BARLOW), "views too strong"),
    "SimCLR, a constant in its features": Case(ShiftedSimCLR(), "anisotropy"),
    "Barlow Twins, a constant in its features": Case(ShiftedBarlow(**BARLOW), "anisotropy"),
    "SimCLR, test images in training": Case(SimCLR(), "leak between training and test", leaking),
    "BYOL, test images in training": Case(BYOL(dim=128, hidden_dim=256), "leak between training and test", leaking),
}

HEALTHY = {
    name: Case(recipes.load_method(name).tiny[0])
    for name in (
        "simclr", "moco", "moco-v2", "byol", "barlow-twins", "w-mse", "swav", "deepcluster", "instance-discrimination-npid",
        "invariant-spreading", "debiased-contrastive", "hard-negative-robinson", "mochi", "pcl", "pirl", "supcon",
    )
} | {"simcse-unsup": Case(SimCSEUnsupervised(pooling="mean"), data="docstrings", settings=TEXT)}  # fmt: skip
