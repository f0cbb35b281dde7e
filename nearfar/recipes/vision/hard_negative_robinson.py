r"""Contrastive learning with hard negatives: debiased, with larger weights for nearer negatives.

Claim: useful negatives look like the anchor and belong to another class. Their distribution is
\(q_\beta^-(x^-) \propto e^{\beta s(x, x^-)} p^-(x^-)\). It needs no sampling: importance weights on the
batch's own negatives have the same effect, in two lines of code and at no cost.

$$\ell_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + N g_i}, \qquad
g_i = \max\Big\{ \frac{1}{1 - \eta^+} \Big( \frac{\sum_j e^{(1 + \beta) s_{ij}}}{\sum_j e^{\beta s_{ij}}}
- \eta^+ e^{s_i^+} \Big),\; e^{-1/\tau} \Big\}, \qquad s = \cos/\tau$$

Shapes: as SimCLR: z (n, dim) of each of two views; N = 2n - 2 negatives for each of 2n rows.

Requirements: the share \(\eta^+\) of false negatives. Harder negatives are more often false, so hardness
weights without the correction reduce accuracy. The expectation of the positive is over \(p^+\), not over
\(p\).

Relations: \(\beta = 0\) is the debiased loss; \(\beta = 0, \eta^+ = 0\) is SimCLR. For large \(\beta\) only
the hardest negative remains. MoCHi creates harder negatives instead of weighting existing ones.

Reference: Robinson, Chuang, Sra & Jegelka, "Contrastive Learning with Hard Negative Samples", ICLR 2021,
arXiv:2010.04592.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Embeddings, Net, RandomKey, TrainConfig
from nearfar.losses import hard_negative
from nearfar.recipes.vision.debiased_contrastive import DebiasedContrastive
from nearfar.scores import Scores


@dataclass(frozen=True)
class HardNegativeRobinson(DebiasedContrastive):
    """Contrastive learning with hard negatives: importance weights by hardness, debiased."""

    card = dataclasses.replace(
        DebiasedContrastive.card,
        title="Hard negatives (Robinson et al.)",
        paper="arXiv:2010.04592",
        year=2021,
        negative="all views of the batch's other images, weighted by hardness and debiased",
        loss="debiased InfoNCE with importance-weighted negatives",
        equation=r"\ell_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + N g_i}, \quad g_i = \max\Big\{ \frac{1}{1 - \eta^+} \Big("
        r"\frac{\sum_j e^{(1 + \beta) s_{ij}}}{\sum_j e^{\beta s_{ij}}} - \eta^+ e^{s_i^+} \Big), e^{-1/\tau} \Big\}",
    )
    limits = {**DebiasedContrastive.limits, "hardness": (0.0, float("inf"))}  # noqa: RUF012

    hardness: float = 1.0
    """Concentration of the weights on hard negatives (beta in the equation). 0 weights all alike."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return hard_negative(Scores.from_views(z["z0"], z["z1"]) / self.temperature, self.false_negative_share, self.hardness).mean()


paper = HardNegativeRobinson(), TrainConfig(
    data="stl10", encoder="resnet50", image_size=32, batch_size=256, epochs=400,
    optimizer="adamw", lr=1e-3, weight_decay=1e-6, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {"STL-10 linear, ResNet-50, 400 epochs (SimCLR: 80.15)": (87.44, "github.com/joshr17/HCL, image/README")}

tiny = HardNegativeRobinson(), TrainConfig(data="digits", steps=300, batch_size=256, lr=2e-3)
