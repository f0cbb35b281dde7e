"""Mistakes in a recipe of one's own: each is named by its method; and what works in training works in evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nearfar
from nearfar.core import Embeddings, NearfarError, Net, RandomKey, RawBatch, Rows, Sizes, UsageError, Views
from nearfar.data.common.tokenizer import load_pretrained_tokenizer
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.similarity.augment import ImageViews

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
RUN: dict[str, Any] = {"data": IMAGES, "steps": 3, "batch_size": 16, "encoder": "convnet-gn", "log_every": 1}


@dataclass(frozen=True)
class Nothing(SimCLR):
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Any:
        return None


@dataclass(frozen=True)
class NoLoss(SimCLR):
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Any:
        return {"apart": z["z0"].mean()}


@dataclass(frozen=True)
class Rowwise(SimCLR):
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Any:
        return (z["z0"] * z["z1"]).sum(1)


@dataclass(frozen=True)
class PlainNumber(SimCLR):
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Any:
        return {"loss": (z["z0"] * z["z1"]).sum(), "rows": 16}


@dataclass(frozen=True)
class Detached(SimCLR):
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Any:
        return (z["z0"].detach() * z["z1"].detach()).sum()


@dataclass(frozen=True)
class Count(SimCLR):
    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Any:
        return {**super().embed(net, x, rng_key), "count": 3}


@dataclass(frozen=True)
class Alone(SimCLR):
    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Any:
        return super().embed(net, x, rng_key)["z0"]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Nothing, "Nothing.objective: 'loss' must be a tensor of one number; it is of type NoneType"),
        (NoLoss, "NoLoss.objective returned a dict without \"loss\": it has 'apart'"),
        (Rowwise, r"'loss' must be a tensor of one number; it is a tensor of shape \(16,\). Average losses of rows with .mean\(\)"),
        (PlainNumber, "'rows' must be a tensor of one number; it is of type int"),
        (Detached, "the loss of Detached does not depend on a trained parameter"),
        (Count, "Count.embed: 'count' must be a tensor of rows; it is of type int"),
        (Alone, r"Alone.embed must return tensors by name.* it returned a tensor of shape \(16, 128\)"),
    ],
)
def test_a_mistake_is_named_by_its_method(recipe, words):
    with pytest.raises(NearfarError, match=words):
        nearfar.fit(recipe(norm="layer"), **RUN)


@dataclass(frozen=True)
class Noisy(ImageViews):
    """Views that draw from torch, without a key."""

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        seen = raw["image"].float() / 255
        return {"v0": seen + 0.1 * torch.randn_like(seen), "v1": seen + 0.1 * torch.randn_like(seen)}


@dataclass(frozen=True)
class OfNoise(SimCLR):
    def similarity(self, net: Net) -> ImageViews:
        return Noisy(super().similarity(net).pipelines)


def losses(state: int, **changes: Any) -> list[float]:
    """Of a run that finds torch's generator in some state."""
    torch.manual_seed(state)
    return [row["loss"] for row in nearfar.fit(OfNoise(norm="layer"), **RUN | changes).metrics if "loss" in row]


def test_views_that_draw_from_torch_are_the_same_again():
    assert losses(1) == losses(2)
    assert losses(1, chunk_size=8) == losses(2, chunk_size=8)
    assert losses(1) != losses(1, seed=1)


class Seen(nn.Module):
    """Remembers the range of what it was given."""

    dim = 64

    def __init__(self):
        super().__init__()
        self.layer, self.largest = nn.Linear(64, 64), 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, float(x.max()))
        return self.layer(x.flatten(1))


@dataclass(frozen=True)
class OwnEncoder(SimCLR):
    def build(self, sizes: Sizes, encoder) -> Net:
        return super().build(sizes, Seen())


def test_an_encoder_of_ones_own_is_given_the_same_in_evaluation_as_in_training():
    trained = nearfar.fit(OwnEncoder(norm="layer"), **RUN)
    trained.net.encoder.largest = 0.0
    vectors = trained.encode(IMAGES)
    assert vectors.shape == (60, 64)
    assert 0.9 < trained.net.encoder.largest <= 1.0


def test_a_tokenizer_that_knows_no_words_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"has only special tokens|no readable tokenizer"):
        load_pretrained_tokenizer(str(tmp_path))
