r"""LooC: one embedding space for each augmentation, and one invariant to all.

Claim: an encoder that is invariant to an augmentation loses the information that the augmentation changes.
The downstream task decides which loss is harmless. One space for each augmentation keeps all information.

$$\mathcal{L}_q = -\frac1{n + 1} \left(\log \frac{E^+_{0,0}}{E^+_{0,0} + \sum_{k^-} E^-_0}
+ \sum_{i=1}^n \log \frac{E^+_{i,i}}{\sum_{j=0}^n E^+_{i,j} + \sum_{k^-} E^-_i}\right)$$

$$E^+_{i,j} = \exp(v_q^i \cdot v_{k_j}^i/\tau), \qquad E^-_i = \exp(v_q^i \cdot v_{k^-}^i/\tau)$$

\(v^i\) is a view in space i. Key \(k_0\) shares no augmentation with the query. Key \(k_i\) has the query's
i-th augmentation and draws all others again. In space i > 0 the other keys of the same image are negatives:
they differ in the augmentation that this space must encode. Space 0 leaves them out (as we read the paper).

Shapes: query v0 and keys v1 … v(n+1), (n, c, h, w) -> q (n, spaces, dim), k (n, keys, spaces, dim) unit
vectors; a queue (K, dim) for each space. There are n + 1 spaces and n + 1 keys.

Requirements: augmentations of different kinds, here two: color and rotation for photographs, crop and
rotation for handwriting. n + 2 views a step.

Relations: `moco-v2` is space 0 alone. Heads are discarded after training, so the encoder must hold the
information for all spaces. The paper rotates photographs by quarter turns, this recipe by any angle.

Reference: Xiao, Wang, Efros & Darrell, "What Should Not Be Contrastive in Contrastive Learning", ICLR 2021,
arXiv:2008.05659.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Ema, Embeddings, Net, Queue, RandomKey, RawBatch, Recipe, Rows, Similarity, Sizes, TrainConfig, Views
from nearfar.heads import mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity import ColorJitter, Compose, Crop, Elastic, Flip, Grayscale, ImageOp, Rotate, Shear
from nearfar.similarity.augment import to_float_images
from nearfar.similarity.view_presets import SMALL_IMAGE_SIZE

NUM_SPACES = 3
"""One space without augmentation-specific information, and one for each of two factors."""


@dataclass(frozen=True)
class LeaveOneOut(Similarity):
    """Query v0 and keys that share nothing (v1), factor 1 (v2), factor 2 (v3), …"""

    base_op: ImageOp
    factors: tuple[ImageOp, ...]

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return {"image": data.read(rows.ids)}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        image = to_float_images(raw["image"])
        slots, views = torch.as_tensor(rows.slots, device=image.device), {}
        for v in range(len(self.factors) + 2):
            x = self.base_op(image, slots, rng_key("view", v))
            for i, factor in enumerate(self.factors, start=1):
                x = factor(x, slots, rng_key("factor", i, 0 if v == i + 1 else v))
            views[f"v{v}"] = x
        return views


class SpaceHeads(nn.Module):
    """Projection heads, one for each space, with unit vectors as output (n, spaces, dim)."""

    def __init__(self, width: int, dim: int, num_spaces: int):
        super().__init__()
        self.heads = nn.ModuleList(mlp(width, width, dim) for _ in range(num_spaces))

    def forward(self, h: Float[Tensor, "n d"]) -> Float[Tensor, "n s e"]:
        return F.normalize(torch.stack([head(h) for head in self.heads], dim=1), dim=2)


@dataclass(frozen=True)
class LooC(Recipe):
    """Leave-one-out contrastive learning."""

    card = Card(
        title="LooC", paper="arXiv:2008.05659", year=2021, modality="image",
        similarity="data transformation",
        query="augmented image, in several spaces",
        positive="the view that shares the space's augmentation",
        negative="a queue of keys, and the image's own views that differ in that augmentation",
        encoder="query encoder end to end, key encoder by momentum",
        head="an MLP for each space",
        score="dot product of unit vectors / tau",
        loss="InfoNCE in each space",
        equation=r"\mathcal{L}_q = -\frac1{n + 1} \left(\log \frac{E^+_{0,0}}{E^+_{0,0} + \sum E^-_0}"
        r"+ \sum_{i=1}^n \log \frac{E^+_{i,i}}{\sum_{j=0}^n E^+_{i,j} + \sum E^-_i}\right)",
        family="NCE and softmax", similarity_type=("data transformation",), head_type=("projection",),
    )  # fmt: skip
    limits = {"ema_momentum": (0.0, 1.0)}  # noqa: RUF012
    dim: int = 128
    """Dimension of each space."""
    temperature: float = 0.2
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    queue_size: int = 4096
    """Number of past keys in the queue of each space (K)."""
    ema_momentum: float = 0.99
    """Momentum of the key encoder."""

    def similarity(self, net: Net) -> LeaveOneOut:
        size = net.sizes["size"]
        if net.sizes["channels"] == 1 and size <= SMALL_IMAGE_SIZE:
            return LeaveOneOut(Compose(Shear(10.0), Elastic(std_pixels=size / 20)), (Crop(size, scale=(0.6, 1.0)), Rotate(15.0)))
        colour = Compose(ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.2))
        return LeaveOneOut(Compose(Crop(size, scale=(0.2, 1.0)), Flip()), (colour, Rotate(180.0)))

    def build(self, sizes: Sizes, encoder) -> Net:
        query = nn.Sequential(encoder, SpaceHeads(encoder.dim, self.dim, NUM_SPACES))
        queues = nn.ModuleList(Queue(self.queue_size, self.dim) for _ in range(NUM_SPACES))
        return Net(encoder=encoder, query=query, key=Ema(query), queues=queues)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"q": net.query(x["v0"]), "k": torch.stack([net.key(x[f"v{j + 1}"]) for j in range(NUM_SPACES)], dim=1)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return torch.stack([self.space_loss(i, z["q"][:, i], z["k"][:, :, i], queue.rows) for i, queue in enumerate(net.queues)]).mean()

    def space_loss(self, space: int, q: Float[Tensor, "n d"], k: Float[Tensor, "n j d"], queue: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
        """Compute InfoNCE in one space."""
        own = torch.einsum("nd,njd->nj", q, k)
        sign = torch.full_like(own, 0 if space == 0 else -1, dtype=torch.int8)
        sign[:, space] = 1
        return info_nce(Scores(q, queue, private_scores=own, private_signs=sign) / self.temperature).mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.key.follow(net.query, self.ema_momentum)
        for i, queue in enumerate(net.queues):
            queue.push(z["k"][:, i, i])


paper = LooC(queue_size=65_536, ema_momentum=0.999), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=500,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = LooC(queue_size=512), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)
