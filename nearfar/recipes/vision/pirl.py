r"""PIRL: learn the same representation for an image and its jigsaw puzzle.

Claim: pretext tasks make a network *predict* the transformation (the order of the tiles), so that its
representation depends on the transformation. Semantic features should not depend on it. PIRL asks for
invariance to the transformation instead, with a contrastive loss.

$$\mathcal{L} = \lambda\, L_{NCE}\big(m_I, g(v_{I^t})\big) + (1 - \lambda)\, L_{NCE}\big(m_I, f(v_I)\big), \qquad
L_{NCE}(m_I, v) = -\log h(m_I, v) - \sum_{I' \neq I} \log\big(1 - h(m_{I'}, v)\big),$$

$$h(m_I, v) = \frac{\exp(s(m_I, v)/\tau)}{\exp(s(m_I, v)/\tau) + \sum_{I' \neq I} \exp(s(m_{I'}, v)/\tau)}, \qquad
m_I \leftarrow \tfrac12 m_I + \tfrac12 f(v_I)$$

\(v_I\) is the representation of the image, \(v_{I^t}\) that of its tiles, s the cosine, and \(I'\) drawn from
the memory bank.

Shapes: v0 the image and v1 its shuffled tiles (n, c, h, w) -> f, g (n, dim); bank (samples, dim), N of its
vectors drawn as negatives. Tiles are encoded one by one. Each passes through a linear layer to dim. The t
results are concatenated in their random order, and another linear layer computes g.

Requirements: an encoder that accepts tiles, which are smaller than images. 3 x 3 tiles, or 2 x 2 for small
images. The second term of the loss pulls f towards the image's own past, which keeps the bank stable.

Relations: the bank is that of instance discrimination (Wu et al.), whose loss is the case \(\lambda = 0\). h
is a softmax over the drawn candidates, so that its two logarithms are the two terms of the invariant and
spreading instance feature. Predicting the permutation is the pretext task of Noroozi & Favaro. The paper
jitters the colors of every tile independently. Here all tiles have the colors of the augmented image.

Reference: Misra & van der Maaten, "Self-Supervised Learning of Pretext-Invariant Representations", CVPR 2020,
arXiv:1912.01991.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, MemoryBank, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import mlp
from nearfar.losses import info_nce, spreading
from nearfar.scores import Scores, l2_normalize
from nearfar.similarity import Compose, Crop, ImageViews, choose_views, moco_v1_views
from nearfar.similarity.jigsaw import Jigsaw, split_tiles
from nearfar.similarity.view_presets import SMALL_IMAGE_SIZE


@dataclass(frozen=True)
class PIRL(Recipe):
    """Self-supervised learning of pretext-invariant representations, with the jigsaw pretext task."""

    card = Card(
        title="PIRL",
        paper="arXiv:1912.01991",
        year=2019,
        modality="image",
        similarity="data transformation",
        query="jigsaw of the image, and the image itself",
        positive="the image's entry in a memory bank",
        negative="other images' entries, drawn at random",
        encoder="one, end to end; memory bank by momentum",
        head="two linear: f of the image, g of its concatenated tiles",
        score="cosine / tau",
        loss="NCE of the jigsaw and of the image, mixed by lambda",
        equation=r"\mathcal{L} = \lambda\, L_{NCE}\big(m_I, g(v_{I^t})\big) + (1 - \lambda)\, L_{NCE}\big(m_I, f(v_I)\big)",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )
    limits = {"jigsaw_weight": (0.0, 1.0), "ema_momentum": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 128
    """Dimension of the space where representations are compared."""
    temperature: float = 0.07
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    jigsaw_weight: float = 0.5
    """Weight of the jigsaw term against the image term (lambda in the equation)."""
    negatives: int = 4096
    """Number of bank vectors drawn as negatives at each step (N)."""
    ema_momentum: float = 0.5
    """Momentum of a bank vector when its image is seen again."""

    def similarity(self, net: Net) -> ImageViews:
        image = choose_views(net.sizes, moco_v1_views).pipelines[0]
        size, grid = net.sizes["size"], _grid(net.sizes)
        gap = max(1, size // grid // 4)
        # The tiles without their gaps are as large as the image.
        larger = Crop(size + grid * gap, scale=(1.0, 1.0), ratio=(1.0, 1.0))
        return ImageViews((image, Compose(image, larger, Jigsaw(grid, gap))))

    def build(self, sizes: Sizes, encoder) -> Net:
        bank = MemoryBank(sizes["n"], self.dim)
        bank.put(slice(None), l2_normalize(torch.empty_like(bank.rows).normal_()))
        tile, g = mlp(encoder.dim, self.dim), mlp(_grid(sizes) ** 2 * self.dim, self.dim)
        return Net(encoder=encoder, f=mlp(encoder.dim, self.dim), tile=tile, g=g, bank=bank)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        cut = split_tiles(x["v1"], _grid(net.sizes))
        of_tiles = net.tile(net.encoder(cut.flatten(0, 1))).unflatten(0, cut.shape[:2])
        return {"f": net.f(net.encoder(x["v0"])), "g": net.g(of_tiles.flatten(1)), "id": x["id"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        drawn = rng_key("negatives").integers(torch.arange(self.negatives, device=z["id"].device), len(net.bank))
        return self.jigsaw_weight * self.nce_loss(net, z["g"], z["id"], drawn) + (1 - self.jigsaw_weight) * self.nce_loss(
            net, z["f"], z["id"], drawn
        )

    def nce_loss(self, net: Net, v: Tensor, ids: Tensor, drawn: Tensor) -> Tensor:
        """Compute the noise-contrastive loss of v against the bank vectors of its images."""
        S = Scores.from_matched(v, net.bank[ids], negatives=net.bank[drawn]).exclude_negatives(ids, drawn) / self.temperature
        return (info_nce(S) + spreading(S)).mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.bank.put(z["id"], l2_normalize(self.ema_momentum * net.bank[z["id"]] + (1 - self.ema_momentum) * l2_normalize(z["f"])))


def _grid(sizes: Sizes) -> int:
    return 2 if sizes["size"] <= SMALL_IMAGE_SIZE else 3


paper = PIRL(negatives=32000), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=1024, epochs=800,
    optimizer="sgd", lr=0.12, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 800 epochs": (63.6, "arXiv:1912.01991, table 2")}

tiny = PIRL(negatives=512), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)
