r"""Debiased contrastive learning: SimCLR with a correction for false negatives.

Claim: some negatives are false: a share \(\eta^+\) of the other images of the batch has the class of the
anchor. The distribution of true negatives is \(p^- = (p - \eta^+ p^+)/(1 - \eta^+)\). Both \(p\) (the batch)
and \(p^+\) (the other view) can be sampled, so that the contribution of the false negatives can be subtracted
without labels.

$$\ell_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + N g_i}, \qquad
g_i = \max\Big\{ \frac{1}{1 - \eta^+} \Big( \frac1N \sum_{j=1}^{N} e^{s_{ij}} - \eta^+ e^{s_i^+} \Big),\; e^{-1/\tau} \Big\},
\qquad s = \cos/\tau$$

Shapes: as SimCLR: z (n, dim) of each of two views; N = 2n - 2 negatives for each of 2n rows.

Requirements: the share \(\eta^+\), about one over the number of classes. The estimate of a mean of
exponentials has a floor: the smallest value that such a mean can have. Every exponential is over the
temperature.

Relations: \(\eta^+ = 0\) is SimCLR. The hard-negative loss of Robinson et al. adds hardness weights to this
correction. SupCon uses labels and needs no correction.

Reference: Chuang, Robinson, Lin, Torralba & Jegelka, "Debiased Contrastive Learning", NeurIPS 2020,
arXiv:2007.00224.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Embeddings, Net, RandomKey, TrainConfig
from nearfar.losses import debiased
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.scores import Scores


@dataclass(frozen=True)
class DebiasedContrastive(SimCLR):
    """Debiased contrastive learning: subtract false negatives, without labels."""

    card = dataclasses.replace(
        SimCLR.card,
        title="Debiased contrastive",
        paper="arXiv:2007.00224",
        negative="all views of the batch's other images, less the share of them that is alike",
        loss="debiased InfoNCE",
        equation=r"\ell_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + N g_i}, \quad g_i = \max\Big\{ \frac{1}{1 - \eta^+} \Big("
        r"\frac1N \sum_j e^{s_{ij}} - \eta^+ e^{s_i^+} \Big), e^{-1/\tau} \Big\}",
    )
    limits = {**SimCLR.limits, "false_negative_share": (0.0, 0.99)}  # noqa: RUF012

    false_negative_share: float = 0.1
    """Share of false negatives (eta in the equation): about 1 / number of classes."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return debiased(Scores.from_views(z["z0"], z["z1"]) / self.temperature, self.false_negative_share).mean()


paper = DebiasedContrastive(), TrainConfig(
    data="stl10", encoder="resnet50", image_size=32, batch_size=256, epochs=400,
    optimizer="adamw", lr=1e-3, weight_decay=1e-6, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {"STL-10 linear, ResNet-50, 400 epochs (SimCLR: 80.15)": (84.26, "github.com/chingyaoc/DCL, README")}

tiny = DebiasedContrastive(), TrainConfig(data="digits", steps=300, batch_size=256, lr=2e-3)
