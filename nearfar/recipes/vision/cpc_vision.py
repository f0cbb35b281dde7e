r"""CPC on images: from the rows of patches above, the patches below are told from all others.

Claim: to predict what stands further down in an image, in a space that is learned along with the prediction, an encoder of patches must
know what the image is of; linear classification from the averaged patches beats earlier unsupervised methods.

$$\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{i+k,j}^\top W_k c_{i,j})}{\sum_{z' \in Z} \exp({z'}^\top W_k c_{i,j})}\right]$$

Shapes: images (n, c, h, w) -> patches (n, grid, grid, c, p, p) that overlap by half -> z (n, grid, grid, encoder.dim) -> context c
(n, grid, grid, dim); for each k a table of n (grid - k) grid rows and n grid² columns. Z are all patches of the batch, those of the same
image among them. The representation of an image is the mean of its patches' z.

Requirements: an encoder without batch statistics (--encoder convnet-gn, resnet18-gn): these tell which patches belong together. Large
images; a patch of fewer than 8 pixels says little.

Relations: `cpc-audio` in two dimensions: rows in place of moments, PixelCNN in place of the GRU, and negatives of the whole batch.
`losses.cpc` is the same loss where every row of a step is a context. SimCLR drops the prediction and compares views of whole images.

Reference: van den Oord, Li & Vinyals, "Representation Learning with Contrastive Predictive Coding", arXiv:1807.03748.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embedded, Key, Net, Recipe, Run, Sizes, UsageError, Views
from nearfar.heads.rows_above import RowsAbove
from nearfar.losses import info_nce
from nearfar.scores import dot, pairs
from nearfar.similarity import Augment, Compose, Crop, Flip, Grey, Jitter, views_for
from nearfar.similarity.patches import Patches, patches


@dataclass(frozen=True)
class CPCVision(Recipe):
    """Contrastive predictive coding of images."""

    card = Card(
        title="CPC on images",
        paper="arXiv:1807.03748",
        year=2018,
        modality="image",
        similarity="context-instance",
        query="the context of the rows above",
        positive="the patch some rows below",
        negative="all other patches of the batch, of the same image and of others",
        encoder="one, of patches, end to end",
        head="PixelCNN over the grid of patches",
        score="bilinear, one map for each distance",
        loss="InfoNCE",
        equation=r"\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{i+k,j}^\top W_k c_{i,j})}"
        r"{\sum_{z' \in Z} \exp({z'}^\top W_k c_{i,j})}\right]",
    )
    limits = {"grid": (2.0, 64.0), "nearest": (1.0, 64.0), "ahead": (1.0, 64.0)}  # noqa: RUF012

    grid: int = 7
    """Patches a side; they overlap by half."""
    dim: int = 256
    """Width of the context."""
    nearest: int = 1
    """How many rows below the nearest patches are that are predicted; from 2 on they do not overlap with what is known."""
    ahead: int = 5
    """How many rows below the farthest are."""

    def __post_init__(self):
        super().__post_init__()
        if not self.nearest <= self.ahead < self.grid:
            asked = f"--nearest {self.nearest} to --ahead {self.ahead}"
            raise UsageError(f"{asked}: of {self.grid} rows the last is {self.grid - 1} rows below the first")

    def similarity(self, net: Net) -> Patches:
        return Patches(views_for(net.sizes, _photo).pipelines[0], self.grid)

    def build(self, sizes: Sizes, encoder) -> Net:
        steps = self.ahead - self.nearest + 1
        ways = nn.Parameter(torch.empty(steps, self.dim, encoder.dim).normal_(std=(self.dim * encoder.dim) ** -0.5))
        return Net(encoder=encoder, context=RowsAbove(encoder.dim, self.dim), ways=ways)

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        z = self.grid_of(net.encoder, x["v0"])
        return {"z": z, "c": net.context(z)}

    def objective(self, net: Net, z: Embedded, key: Key) -> dict[str, Tensor]:
        steps = enumerate(net.ways, start=self.nearest)
        losses = torch.stack([told_below(z["c"], z["z"], way, k) for k, way in steps])
        return {"loss": losses.mean(), "nearest_loss": losses[0], "farthest_loss": losses[-1]}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return self.grid_of(getattr(net, tower), patches(x, self.grid)).mean((1, 2))

    def grid_of(self, encoder: nn.Module, cut: Tensor) -> Tensor:
        return encoder(cut.flatten(0, 2)).unflatten(0, cut.shape[:3])


def told_below(c: Tensor, z: Tensor, way: Tensor, k: int) -> Tensor:
    """InfoNCE of finding the patch k rows below each context, among all patches of the batch: those that are nobody's come last."""
    below, others = z[:, k:].flatten(0, 2), z[:, :k].flatten(0, 2)
    return info_nce(pairs((c[:, :-k] @ way).flatten(0, 2), torch.cat([below, others]), score=dot)).mean()


def _photo(size: int) -> Augment:
    """The paper crops, flips and takes all colour away; where colours are kept sometimes, an encoder learns to use them too."""
    return Augment((Compose(Crop(size, scale=(0.5, 1.0)), Flip(), Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), Grey(p=0.5)),))


paper = CPCVision(dim=1024), Run(
    data="imagenet", encoder="resnet50-imagenet-gn", image_size=256, batch=128, epochs=100, lr=2e-4, weight_decay=0.0, warmup=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-101": (48.7, "arXiv:1807.03748, table 3")}

tiny = CPCVision(grid=3, dim=64, ahead=2), Run(data="digits", encoder="convnet-gn", steps=200, batch=64, lr=2e-3)
