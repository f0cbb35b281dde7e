r"""SCARF: match a row of a table to its copy with random features from other rows.

Claim: contrastive pre-training works for tables if the views come from the data. A random subset of the
features is replaced by draws from their empirical marginal distributions. These views need no knowledge of
the features, keep their units, and do not depend on their scale. Pre-training improves networks that are then
fine-tuned on few or noisy labels.

$$\mathcal{L} = \frac{1}{N} \sum_{i=1}^{N} -\log \frac{\exp(s_{i,i}/\tau)}{\frac{1}{N} \sum_{k=1}^{N} \exp(s_{i,k}/\tau)},
\qquad s_{i,j} = \cos(z_i, \tilde{z}_j), \quad z = g(f(x)), \quad \tilde{z} = g(f(\tilde{x}))$$

\(\tilde x\) equals \(x\) except for \(\lfloor c M \rfloor\) of its M features. The mean in the denominator
shifts the loss by \(\log N\); it is left out here.

Shapes: rows v0 and corrupted rows v1 (n, f) -> representation (n, encoder.dim) -> z (n, dim). The loss is
the mean over the n rows that are not corrupted.

Requirements: columns of numbers. A corruption that leaves enough features to recognize the row.

Relations: SimCLR changes both views and compares all 2N views with each other. Here only one view is changed,
and the uncorrupted rows are compared with the corrupted ones in one direction. VIME has the same corruption
and predicts it instead. The encoder standardizes the columns, so the views are drawn in the data's own units.

Components of the paper: corruption, encoder, head and loss are here. Early stopping on a validation loss is
absent: a run has a fixed number of steps. Fine-tuning is absent: probes measure the frozen encoder. One-hot
encoding and imputation are absent: categories and missing values are rejected.

Reference: Bahri, Jiang, Tay & Metzler, "SCARF: Self-Supervised Contrastive Learning using Random Feature
Corruption", ICLR 2022, arXiv:2106.15147.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.core.field_checks import POSITIVE
from nearfar.heads import mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity.table import CorruptedRows


@dataclass(frozen=True)
class SCARF(Recipe):
    """Self-supervised contrastive learning using random feature corruption."""

    card = Card(
        title="SCARF",
        paper="arXiv:2106.15147",
        year=2021,
        modality="table",
        similarity="data transformation",
        query="row of a table",
        positive="the same row with random features from other rows",
        negative="corrupted copies of the batch's other rows, N-1",
        encoder="one, end to end",
        head="MLP with one hidden layer",
        score="cosine / tau",
        loss="InfoNCE from rows to corrupted rows",
        equation=r"\mathcal{L} = \frac{1}{N} \sum_{i=1}^{N} -\log \frac{\exp(s_{i,i}/\tau)}{\frac{1}{N} \sum_{k=1}^{N} \exp(s_{i,k}/\tau)}",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    limits = {"corruption": (POSITIVE[0], 1.0)}  # noqa: RUF012

    corruption: float = 0.4
    """Share of the features that are replaced in one view (c in the paper), rounded down, at least one
    feature. The paper uses 0.6."""
    temperature: float = 0.2
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives. The paper
    uses 1, which suits fine-tuning; probes on the frozen encoder prefer lower values."""
    dim: int = 256
    """Width of the head: its hidden layer, and the space where views are compared."""

    def similarity(self, net: Net) -> CorruptedRows:
        return CorruptedRows(net.sizes["features"], self.corruption)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, self.dim, self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z, corrupted = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"z0": z, "z1": corrupted}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return info_nce(Scores.from_pairs(z["z0"], z["z1"]) / self.temperature).mean()


# Adam is AdamW without weight decay. The paper stops early, after at most 1,000 epochs. It names no schedule.
paper = SCARF(corruption=0.6, temperature=1.0), TrainConfig(
    data="OpenML-CC18, 69 tables", encoder="mlp", batch_size=128, epochs=1000,
    optimizer="adamw", lr=1e-3, weight_decay=0.0, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "OpenML-CC18, relative gain in accuracy over no pre-training, fine-tuned, %": (2.352, "arXiv:2106.15147, table 1"),
    "OpenML-CC18, the same with labels of 25 % of the rows, %": (3.692, "arXiv:2106.15147, table 1"),
}

tiny = SCARF(), TrainConfig(data="digits-table", encoder="mlp", steps=300, batch_size=128, lr=1e-3)
