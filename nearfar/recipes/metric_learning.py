"""Base recipe of supervised metric learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nearfar.core import Embeddings, Net, RandomKey, Recipe, Sizes, Views
from nearfar.heads import mlp
from nearfar.similarity import Compose, Crop, Flip, ImageViews, choose_views
from nearfar.similarity.class_balanced import ClassBalancedViews


@dataclass(frozen=True)
class MetricLearning(Recipe):
    """Supervised metric learning: class-balanced batches, one view of each sample, and a trained embedding.

    Samples with the same label are similar. The loss compares embeddings, and users compare the same
    embeddings after training: the head is kept. `encode` returns the embedding; `encode(…, tower="trunk")`
    returns the output of the encoder, before the head.
    """

    uses_labels = True

    dim: int = 64
    """Dimension of the embedding."""
    samples_per_class: int = 4
    """Samples of each class in a batch (K). A batch holds batch size / K classes (P)."""

    def similarity(self, net: Net) -> ClassBalancedViews:
        return ClassBalancedViews(ImageViews(choose_views(net.sizes, crop_and_flip).pipelines[:1]), self.samples_per_class)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=self.build_head(encoder.dim), trunk=encoder)  # `encode` looks up towers

    def build_head(self, width: int) -> nn.Module:
        """Return the linear map from the output of the encoder to the embedding."""
        return mlp(width, self.dim)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"z": net.head(net.encoder(x["v0"])), "y": x["label"], "slot": x["slot"]}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """Return embeddings (tower "encoder") or the output of the encoder (tower "trunk")."""
        h = super().encode(net, x)
        return h if tower == "trunk" else net.head(h)


def crop_and_flip(size: int) -> ImageViews:
    """Return the views of photographs: mild random crops and horizontal flips."""
    return ImageViews.repeat(Compose(Crop(size, scale=(0.7, 1.0)), Flip()))
