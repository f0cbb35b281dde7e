r"""N-pair: match each sample with its partner, against the partners of all other classes.

Claim: a triplet has a single negative, and training with one negative at a time is slow and unstable. N - 1
negatives, one of each other class, turn the loss into a softmax. With one pair of each class, a batch of 2N
vectors serves N such tuples, which otherwise would need N (N + 1) vectors.

$$\mathcal{L} = \frac1N \sum_{i=1}^N \log\Big(1 + \sum_{j \neq i} \exp\big(f_i^\top f_j^+ - f_i^\top f_i^+\big)\Big)
+ \frac{\lambda}{2N} \sum_{i=1}^N \big(\lVert f_i \rVert_2^2 + \lVert f_i^+ \rVert_2^2\big)$$

Shapes: view (2N, c, h, w), two consecutive rows of each class -> f, f⁺ (N, dim), not normalized -> a table of
N rows.

Requirements: labels, and as many classes as pairs. With fewer classes, partners of the same class are not
negatives. The last row of an odd batch is not used.

Relations: for N = 2 a smooth triplet loss. Dot products can grow without limit by longer vectors, hence the
penalty. Vectors are not normalized, because the paper finds that hard to optimize. With cosines and a
temperature it is the loss of SimCLR, whose pairs are views of one image. With all samples of a class as
positives, instead of one, it would be supcon.

Reference: Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig
from nearfar.losses import info_nce, norm_penalty
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, dot


@dataclass(frozen=True)
class NPair(MetricLearning):
    """Improved deep metric learning with the multi-class N-pair loss."""

    card = Card(
        title="N-pair",
        paper="NIPS 2016",
        year=2016,
        modality="image",
        similarity="labels",
        query="image",
        positive="one other image of its class",
        negative="the positives of the N - 1 other classes",
        encoder="one, end to end",
        head="linear",
        score="dot product",
        loss="multi-class N-pair, with a penalty on norms",
        equation=r"\ell_i = \log\Big(1 + \sum_{j \neq i} \exp\big(f_i^\top f_j^+ - f_i^\top f_i^+\big)\Big)",
        family="NCE and softmax",
        similarity_type=("labels",),
        head_type=("projection",),
    )
    limits = {"samples_per_class": (2, 2), "norm_penalty_weight": (0.0, float("inf"))}  # noqa: RUF012

    samples_per_class: int = 2
    """Samples of each class: a pair."""
    norm_penalty_weight: float = 0.002
    """Weight of the squared norms (lambda in the equation)."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        both = len(z["z"]) // 2 * 2
        (f, f_plus), y = (z["z"][first:both:2] for first in (0, 1)), z["y"][:both:2]
        found = info_nce(Scores.from_pairs(f, f_plus, score=dot).exclude_negatives(y, y)).mean()
        squared = norm_penalty(z["z"][:both]).mean()
        return {"loss": found + self.norm_penalty_weight * squared, "squared_norm": squared}


paper = NPair(dim=512), TrainConfig(
    data="online_products", encoder="resnet50-imagenet", image_size=224, batch_size=120, steps=20_000, lr=1e-4,
    weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = NPair(), TrainConfig(data="digits", steps=150, batch_size=64, lr=2e-3)
