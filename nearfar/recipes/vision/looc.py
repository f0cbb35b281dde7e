r"""LooC: one space for each kind of augmentation, which is invariant to all the others and sees this one, beside a space that sees none.

Claim: to be invariant to an augmentation is to lose what it changes, and which loss does no harm depends on the task to come. Spaces that
each leave one augmentation out of what they ignore keep it all in one representation.

$$\mathcal{L}_q = -\frac1{n + 1} \left(\log \frac{E^+_{0,0}}{E^+_{0,0} + \sum_{k^-} E^-_0}
+ \sum_{i=1}^n \log \frac{E^+_{i,i}}{\sum_{j=0}^n E^+_{i,j} + \sum_{k^-} E^-_i}\right)$$

$$E^+_{i,j} = \exp(v_q^i \cdot v_{k_j}^i/\tau), \qquad E^-_i = \exp(v_q^i \cdot v_{k^-}^i/\tau)$$

\(v^i\) is a view in space i. Key \(k_0\) shares no augmentation with the query; \(k_i\) has the query's i-th augmentation and draws all
others anew. In space i > 0 the other keys of the same image are negatives: they differ in what this space must see. In space 0, as
it is read here, they are left out.

Shapes: query v0 and keys v1 … v(n+1), (n, c, h, w) -> q (n, spaces, dim), k (n, keys, spaces, dim) unit vectors; a queue (K, dim) for each
space. Spaces and keys are n + 1 each.

Requirements: augmentations that differ in kind, here two: colour and rotation for photographs, size and place and rotation for
handwriting. n + 2 views a step.

Relations: `moco-v2` is space 0 alone. Heads are thrown away as ever: what they ask for has to be in the encoder. The paper turns
photographs by quarters, here they are turned by any angle.

Reference: Xiao, Wang, Efros & Darrell, "What Should Not Be Contrastive in Contrastive Learning", ICLR 2021, arXiv:2008.05659.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Ema, Embedded, Key, Net, Queue, Raw, Recipe, Rows, Run, Similarity, Sizes, Views
from nearfar.heads import mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity import Compose, Crop, Elastic, Flip, Grey, Jitter, Rotate, Shear
from nearfar.similarity.augment import unit
from nearfar.similarity.image_op import Op
from nearfar.similarity.view_presets import SMALL

SPACES = 3
"""One that sees no augmentation, and one for each of two factors."""


@dataclass(frozen=True)
class LeaveOneOut(Similarity):
    """v0, then views that share with it: nothing (v1), the first factor (v2), the second (v3), …"""

    always: Op
    factors: tuple[Op, ...]

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        return {"image": data.read(rows.ids)}

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        image = unit(raw["image"])
        slots, views = torch.as_tensor(rows.slots, device=image.device), {}
        for v in range(len(self.factors) + 2):
            x = self.always(image, slots, key("view", v))
            for i, factor in enumerate(self.factors, start=1):
                x = factor(x, slots, key("factor", i, 0 if v == i + 1 else v))
            views[f"v{v}"] = x
        return views


class Spaces(nn.Module):
    """A projection head for each space; unit vectors (n, spaces, dim)."""

    def __init__(self, width: int, dim: int, spaces: int):
        super().__init__()
        self.heads = nn.ModuleList(mlp(width, width, dim) for _ in range(spaces))

    def forward(self, h: Float[Tensor, "n d"]) -> Float[Tensor, "n s e"]:
        return F.normalize(torch.stack([head(h) for head in self.heads], dim=1), dim=2)


@dataclass(frozen=True)
class LooC(Recipe):
    """Leave-one-out contrastive learning."""

    card = Card(
        title="LooC",
        paper="arXiv:2008.05659",
        year=2021,
        modality="image",
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
    )

    limits = {"m": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 128
    """Width of each space."""
    tau: float = 0.2
    """Temperature."""
    queue: int = 4096
    """How many keys of earlier steps each space remembers (K)."""
    m: float = 0.99
    """How slowly the key encoder follows."""

    def similarity(self, net: Net) -> LeaveOneOut:
        size = net.sizes["size"]
        if net.sizes["channels"] == 1 and size <= SMALL:
            return LeaveOneOut(Compose(Shear(10.0), Elastic(pixels=size / 20)), (Crop(size, scale=(0.6, 1.0)), Rotate(15.0)))
        colour = Compose(Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), Grey(p=0.2))
        return LeaveOneOut(Compose(Crop(size, scale=(0.2, 1.0)), Flip()), (colour, Rotate(180.0)))

    def build(self, sizes: Sizes, encoder) -> Net:
        query = nn.Sequential(encoder, Spaces(encoder.dim, self.dim, SPACES))
        return Net(encoder=encoder, query=query, key=Ema(query), queues=nn.ModuleList(Queue(self.queue, self.dim) for _ in range(SPACES)))

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        return {"q": net.query(x["v0"]), "k": torch.stack([net.key(x[f"v{j + 1}"]) for j in range(SPACES)], dim=1)}

    def objective(self, net: Net, z: Embedded, key: Key) -> Tensor:
        return torch.stack([self.in_space(i, z["q"][:, i], z["k"][:, :, i], queue.rows) for i, queue in enumerate(net.queues)]).mean()

    def in_space(self, i: int, q: Float[Tensor, "n d"], keys: Float[Tensor, "n j d"], queue: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
        own = torch.einsum("nd,njd->nj", q, keys)
        sign = torch.full_like(own, 0 if i == 0 else -1, dtype=torch.int8)
        sign[:, i] = 1
        return info_nce(Scores(q, queue, own=own, own_sign=sign) / self.tau).mean()

    def update(self, net: Net, z: Embedded, progress: float) -> None:
        net.key.follow(net.query, self.m)
        for i, queue in enumerate(net.queues):
            queue.push(z["k"][:, i, i])


paper = LooC(queue=65_536, m=0.999), Run(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch=256, epochs=500,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, momentum=0.9, warmup=0.0,
)  # fmt: skip

reported = {}

tiny = LooC(queue=512), Run(data="digits", steps=300, batch=128, lr=2e-3)
