r"""AMDIM: Deep InfoMax across two augmented views and several feature map scales.

Claim: Deep InfoMax compares an image with itself. AMDIM applies the same objective across two augmented views
of an image, and between feature maps of several depths. The encoder learns features that do not depend on the
views, and linear classification from them is far better.

$$\mathcal{L} = \sum_{(n, m) \in \{(1, 5), (1, 7), (5, 5)\}}
\mathbb{E}\left[-\log \frac{\exp \hat s_{nm}(f_n(x^1)_i, f_m(x^2)_j)}
{\exp \hat s_{nm}(f_n(x^1)_i, f_m(x^2)_j) + \sum_{\tilde f \in N_m} \exp \hat s_{nm}(f_n(x^1)_i, \tilde f)}
+ \lambda\, s_{nm}^2\right]$$

$$s_{nm}(a, b) = \frac{\phi_n(a)^\top \phi_m(b)}{\sqrt d}, \qquad \hat s = c \tanh(s / c)$$

The loss adds the same term with the views exchanged, and halves the sum. f_1 is the representation, f_5 and
f_7 are a coarse and a finer map (5 and 7 locations per side in the paper). N_m are all locations of other
images. When f_5 is the query, one location i is drawn for each image.

Shapes: two views (n, c, h, w) -> whole (n, dim), coarse (n, locations, dim), fine (n, more locations, dim),
for each view.

Requirements: a convolutional encoder. Its receptive fields must be smaller than the image, otherwise
locations are not parts any more. (The paper's encoder is built for this.) Scores must be soft-clipped and
small: otherwise a single negative may receive the whole gradient.

Relations: Deep InfoMax (`dim`) uses one view and one map. SimCLR compares only the representations of the
views, by cosine. The paper's mixture of several representations for each location is left out.

Reference: Bachman, Hjelm & Buchwalter, "Learning Representations by Maximizing Mutual Information Across
Views", NeurIPS 2019, arXiv:1906.00910.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.feature_maps import encode_with_maps, get_map_channels
from nearfar.heads import HeadNorm
from nearfar.losses import amdim, local_global_info_nce
from nearfar.recipes.vision.dim import Critic
from nearfar.scores import Score
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, Grayscale, ImageViews, choose_views


@dataclass(frozen=True)
class AMDIM(Recipe):
    """Augmented multiscale Deep InfoMax."""

    card = Card(
        title="AMDIM", paper="arXiv:1906.00910", year=2019, modality="image",
        similarity="context-instance and data transformation",
        query="representation of a view, and one place of its coarse map",
        positive="places of the other view's coarse and fine maps",
        negative="places of the batch's other images",
        encoder="ConvNet, end to end",
        head="a hidden layer beside a linear map, for the whole and for each map",
        score="dot product / sqrt(d), soft-clipped",
        loss="InfoNCE over three pairs of scales, with a penalty on squared scores",
        equation=r"\mathcal{L} = \sum_{(n, m)} \mathbb{E}\left[-\log \frac{\exp \hat s_{nm}(f_n(x^1)_i, f_m(x^2)_j)}"
        r"{\exp \hat s_{nm}(f_n(x^1)_i, f_m(x^2)_j) + \sum_{\tilde f} \exp \hat s_{nm}(f_n(x^1)_i, \tilde f)} + \lambda\, s_{nm}^2\right]",
        family="mutual information", similarity_type=("context-instance", "data transformation"),
        head_type=("projection", "contextualization"),
    )  # fmt: skip

    limits = {"coarse_layer": (-8.0, -1.0), "fine_layer": (-8.0, -1.0), "score_penalty_weight": (0.0, float("inf"))}  # noqa: RUF012

    dim: int = 128
    """Dimension of the space where scales are compared (d)."""
    coarse_layer: int = -2
    """Feature map for the coarse scale (f_5). -1 is the last map, whose average is the representation."""
    fine_layer: int = -3
    """Feature map for the fine scale (f_7)."""
    score_bound: float = 20.0
    """Soft-clipping bound of the scores (c in the equation)."""
    score_penalty_weight: float = 4e-2
    """Weight of the squared scores (lambda in the equation)."""
    norm: HeadNorm = "batch"
    """Normalization in the heads."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, _photo_views)

    def build(self, sizes: Sizes, encoder) -> Net:
        widths = {"whole": encoder.dim} | {name: get_map_channels(encoder)[getattr(self, f"{name}_layer")] for name in ("coarse", "fine")}
        return Net(encoder=encoder, **{name: Critic(width, self.dim, self.norm, layer_norm=True) for name, width in widths.items()})

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        whole, maps = encode_with_maps(net.encoder, torch.cat([x["v0"], x["v1"]]))
        scales = {"whole": net.whole(whole)}
        for name, places in (("coarse", maps[self.coarse_layer]), ("fine", maps[self.fine_layer])):
            scales[name] = getattr(net, name)(places.flatten(0, 1)).unflatten(0, places.shape[:2])
        return {f"{name}{i}": half for name, both in scales.items() for i, half in enumerate(both.chunk(2))} | {"slot": x["slot"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        score = soft_clipped_dot(self.dim, self.score_bound)
        told, squares = [], []
        for a, b in ((0, 1), (1, 0)):
            whole, coarse, fine = z[f"whole{a}"], z[f"coarse{b}"], z[f"fine{b}"]
            place = draw_place(z[f"coarse{a}"], z["slot"], rng_key("place", a))
            told.append(amdim(whole, coarse, fine, score=score) + local_global_info_nce(place, coarse, score=score).mean())
            squares.append(sum(mean_squared_score(g, x) for g, x in ((whole, coarse), (whole, fine), (place, coarse))))
        contrast, penalty = torch.stack(told).mean(), torch.stack(squares).mean()
        return {"loss": contrast + self.score_penalty_weight * penalty, "contrast": contrast, "squared_scores": penalty}


def soft_clipped_dot(dim: int, bound: float) -> Score:
    r"""Return the score \(c \tanh(a^\top b / (c \sqrt d))\)."""
    bend = lambda s: bound * torch.tanh(s / (bound * math.sqrt(dim)))
    return Score(lambda a, b: bend(a @ b.T), paired=lambda a, b: bend((a * b).sum(1)), symmetric=True, lowest=-bound)


def mean_squared_score(g: Float[Tensor, "n d"], local: Float[Tensor, "n l d"]) -> Float[Tensor, ""]:
    """Compute the mean of all squared scores before clipping.

    Two d x d products replace the full score table.
    """
    x, d = local.flatten(0, 1), g.shape[1]
    return ((g.T @ g) * (x.T @ x)).sum() / (len(g) * len(x) * d)


def draw_place(local: Float[Tensor, "n l d"], slots: Tensor, rng_key: RandomKey) -> Float[Tensor, "n d"]:
    """Draw one random location for each sample."""
    n, places = local.shape[:2]
    return local[torch.arange(n, device=local.device), rng_key.integers(slots, places)]


def _photo_views(size: int) -> ImageViews:
    """Return the paper's augmentations of photographs.

    The paper flips both views of an image alike. Here each view is flipped independently.
    """
    return ImageViews.repeat(Compose(Crop(size, scale=(0.3, 1.0)), Flip(), ColorJitter(0.4, 0.4, 0.4, 0.2, prob=0.8), Grayscale(prob=0.25)))


paper = AMDIM(dim=2560), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=128, batch_size=1008, epochs=150, lr=2e-4, weight_decay=1e-5,
    schedule="constant",
)  # fmt: skip

reported = {"ImageNet linear top-1, AMDIM's own large encoder": (68.1, "arXiv:1906.00910, abstract")}

tiny = AMDIM(), TrainConfig(data="digits", steps=200, batch_size=64, lr=2e-3)
