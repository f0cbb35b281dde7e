"""What the recipes of supervised metric learning share: batches by class, one view a sample, and an embedding that is the product."""

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
    """Labels say who is alike; the loss compares embeddings, and so does whoever uses them.

    No head is thrown away: `encode` gives the embedding, what the encoder says before it is `encode(…, tower="trunk")`.
    """

    uses_labels = True

    dim: int = 64
    """Width of the embedding."""
    samples_per_class: int = 4
    """Samples of each class in a batch (K); there are batch / K classes (P)."""

    def similarity(self, net: Net) -> ClassBalancedViews:
        return ClassBalancedViews(ImageViews(choose_views(net.sizes, crop_and_flip).pipelines[:1]), self.samples_per_class)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=self.build_head(encoder.dim), trunk=encoder)  # the second name is for `encode`

    def build_head(self, width: int) -> nn.Module:
        """From the encoder's output to the embedding: a linear map."""
        return mlp(width, self.dim)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"z": net.head(net.encoder(x["v0"])), "y": x["label"], "slot": x["slot"]}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """`tower` is "encoder", which here means the embedding, or "trunk", what it is made from."""
        h = super().encode(net, x)
        return h if tower == "trunk" else net.head(h)


def crop_and_flip(size: int) -> ImageViews:
    """What these methods do to photographs: crops that leave most of the picture, and mirror images."""
    return ImageViews.repeat(Compose(Crop(size, scale=(0.7, 1.0)), Flip()))
