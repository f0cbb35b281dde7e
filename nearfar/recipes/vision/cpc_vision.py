r"""CPC on images: predict the patches below from the rows of patches above.

Claim: the encoder predicts patches further down in the image, in a learned latent space, and tells them from
all other patches. For this it must capture the content of the image. Linear classification from the averaged
patches beats earlier unsupervised methods.

$$\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{i+k,j}^\top W_k c_{i,j})}{\sum_{z' \in Z} \exp({z'}^\top W_k c_{i,j})}\right]$$

Shapes: images (n, c, h, w) -> patches (n, grid, grid, c, p, p) that overlap by half -> z (n, grid, grid,
encoder.dim) -> context c (n, grid, grid, dim). For each k the scores are a table of n (grid - k) grid rows
and n grid² columns. Z are all patches of the batch, including those of the same image. An image is
represented by the mean of its patches' z.

Requirements: an encoder without batch statistics (--encoder convnet-gn, resnet18-gn), because batch
statistics reveal which patches belong together. Large images: a patch of fewer than 8 pixels carries little
information.

Relations: `cpc-audio` in two dimensions: rows of patches in place of time steps, a PixelCNN in place of the
GRU, and negatives from the whole batch. `losses.cpc` is the same loss for the case that every row of a step
is a context. SimCLR drops the prediction and compares views of whole images.

Reference: van den Oord, Li & Vinyals, "Representation Learning with Contrastive Predictive Coding",
arXiv:1807.03748.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, UsageError, Views
from nearfar.heads.pixelcnn_context import PixelCNNContext
from nearfar.losses import info_nce
from nearfar.scores import Scores, dot
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, Grayscale, ImageViews, choose_views
from nearfar.similarity.patches import PatchGrid, split_patches


@dataclass(frozen=True)
class CPCVision(Recipe):
    """Contrastive predictive coding on images."""

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
        family="mutual information",
        similarity_type=("context-instance",),
        head_type=("contextualization",),
    )
    limits = {"patches_per_side": (2.0, 64.0), "min_steps_ahead": (1.0, 64.0), "steps_ahead": (1.0, 64.0)}  # noqa: RUF012

    patches_per_side: int = 7
    """Number of patches per side (grid). Patches overlap by half."""
    dim: int = 256
    """Dimension of the context vectors."""
    min_steps_ahead: int = 1
    """Smallest distance in rows to a predicted patch. From 2 on, predicted patches do not overlap the
    context."""
    steps_ahead: int = 5
    """Largest distance in rows to a predicted patch."""

    def __post_init__(self):
        super().__post_init__()
        if not self.min_steps_ahead <= self.steps_ahead < self.patches_per_side:
            asked = f"--min-steps-ahead {self.min_steps_ahead} to --steps-ahead {self.steps_ahead}"
            raise UsageError(f"{asked}: the last of {self.patches_per_side} rows is {self.patches_per_side - 1} rows below the first")

    def similarity(self, net: Net) -> PatchGrid:
        return PatchGrid(choose_views(net.sizes, _photo_views).pipelines[0], self.patches_per_side)

    def build(self, sizes: Sizes, encoder) -> Net:
        steps = self.steps_ahead - self.min_steps_ahead + 1
        ways = nn.Parameter(torch.empty(steps, self.dim, encoder.dim).normal_(std=(self.dim * encoder.dim) ** -0.5))
        return Net(encoder=encoder, context=PixelCNNContext(encoder.dim, self.dim), ways=ways)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z = self.encode_patches(net.encoder, x["v0"])
        return {"z": z, "c": net.context(z)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        steps = enumerate(net.ways, start=self.min_steps_ahead)
        losses = torch.stack([patch_info_nce(z["c"], z["z"], way, k) for k, way in steps])
        return {"loss": losses.mean(), "first_step_loss": losses[0], "last_step_loss": losses[-1]}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return self.encode_patches(getattr(net, tower), split_patches(x, self.patches_per_side)).mean((1, 2))

    def encode_patches(self, encoder: nn.Module, patch_grid: Tensor) -> Tensor:
        """Encode each patch of the grid (n, grid, grid, c, p, p) by itself."""
        return encoder(patch_grid.flatten(0, 2)).unflatten(0, patch_grid.shape[:3])


def patch_info_nce(c: Tensor, z: Tensor, projection: Tensor, rows_below: int) -> Tensor:
    """Compute InfoNCE of the patches `rows_below` rows below each context.

    All patches of the batch are candidates. The patches that are not the positive of any context come last.
    """
    below, others = z[:, rows_below:].flatten(0, 2), z[:, :rows_below].flatten(0, 2)
    return info_nce(Scores.from_pairs((c[:, :-rows_below] @ projection).flatten(0, 2), torch.cat([below, others]), score=dot)).mean()


def _photo_views(size: int) -> ImageViews:
    """Return crops, flips and color changes of photographs.

    The paper removes all colors. With grayscale for only a share of the views, the encoder learns to use
    colors too.
    """
    return ImageViews((Compose(Crop(size, scale=(0.5, 1.0)), Flip(), ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.5)),))


paper = CPCVision(dim=1024), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet-gn", image_size=256, batch_size=128, epochs=100, lr=2e-4,
    weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-101": (48.7, "arXiv:1807.03748, table 3")}

tiny = (
    CPCVision(patches_per_side=3, dim=64, steps_ahead=2),
    TrainConfig(data="digits", encoder="convnet-gn", steps=200, batch_size=64, lr=2e-3),
)
