"""Numbers that tell a sick representation from a healthy one; what they mean is said by `nearfar.api.diagnose`.

Each is a function of tensors and has a scale of its own that depends neither on the method nor on the width: shares,
cosines, ratios.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.evaluate.geometry import effective_rank
from nearfar.evaluate.input_checks import require_finite

NEAR_DUPLICATE_DISTANCE = 0.003
"""Two samples closer than this (`relative_distances`) count as one: a correlation above 0.997 at equal contrast. Of 1,000 test images of
digits, MNIST, Fashion-MNIST and CIFAR-10 none lies so near to a training image; within 0.01 there are 13 of Fashion-MNIST."""


def relative_effective_rank(x: Float[Tensor, "n d"]) -> float:
    r"""The effective rank of the centred rows as a share of the largest it could be, \(\min(n - 1, d)\).

    1 if all directions vary alike, near 0 if a few hold everything: dimensional collapse (Jing et al., 2022). Rows that are all
    equal have no direction: 0.
    """
    require_finite(x, "features")
    centred = x.double() - x.double().mean(0)
    if float(centred.abs().max()) <= torch.finfo(x.dtype).eps * float(x.abs().max()):
        return 0.0
    return effective_rank(centred) / max(1, min(len(x) - 1, x.shape[1]))


def view_match_rate(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> float:
    """How often the row of `b` that is nearest to a row of `a`, by cosine of the centred rows, is its own partner. Ties count as misses.

    Chance is 1 / n. It is the task of instance discrimination, taken as a measure of how hard the views make it.
    """
    require_finite(a, "features of the first views")
    require_finite(b, "features of the second views")
    mean = torch.cat([a, b]).mean(0)
    cosine = F.normalize(a - mean, dim=1) @ F.normalize(b - mean, dim=1).T
    own = cosine.diagonal()
    others = cosine.masked_fill(torch.eye(len(a), dtype=torch.bool, device=a.device), -torch.inf).amax(1)
    return float((own > others).double().mean())


def effective_negative_share(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], temperature: float, score: Literal["cosine", "dot"] = "cosine"
) -> float:
    r"""The share of its negatives that an anchor's loss looks at: \( \exp(H(w)) / (n - 1) \), mean over anchors, with the
    softmax weights \( w_{ij} \propto \exp(s(a_i, b_j) / \tau) \), \( j \neq i \), that negatives have in the gradient of InfoNCE. The
    score s is the cosine, or the dot product as it is.

    Near 1: all are pushed alike, whether near or far (temperature too high). Near 1 / (n - 1): only the nearest one is.
    """
    require_finite(a, "anchors")
    require_finite(b, "candidates")
    a, b = (a, b) if score == "dot" else (F.normalize(a, dim=1), F.normalize(b, dim=1))
    scores = a @ b.T / temperature
    weight = scores.masked_fill(torch.eye(len(a), dtype=torch.bool, device=a.device), -torch.inf).softmax(1)
    return float((torch.special.entr(weight).sum(1).exp() / (len(a) - 1)).mean())


def relative_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], mean: Float[Tensor, " d"]) -> Float[Tensor, "n m"]:
    r"""\( \lVert x - y \rVert^2 / (\lVert x - \mu \rVert^2 + \lVert y - \mu \rVert^2) \): 0 for equal samples, about 1 for unrelated ones.

    Two samples that both equal the mean count as equal.
    """
    require_finite(x, "first samples")
    require_finite(y, "second samples")
    x, y = x - mean, y - mean
    lengths = x.square().sum(1)[:, None] + y.square().sum(1)
    return ((lengths - 2 * x @ y.T).clamp_min(0) / lengths.clamp_min(torch.finfo(x.dtype).tiny)).float()


def count_near_duplicates(
    x: Float[Tensor, "n d"],
    chunks: Iterable[Float[Tensor, "_ d"]],
    mean: Float[Tensor, " d"],
    max_distance: float = NEAR_DUPLICATE_DISTANCE,
) -> Int[Tensor, " n"]:
    """For each row of `x`, how many rows of the chunks are the same sample or nearly so."""
    counts = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for chunk in chunks:
        counts += (relative_distances(x, chunk, mean) < max_distance).sum(1)
    return counts


def in_batch_duplicate_rate(duplicate_counts: Int[Tensor, " n"], batch_size: int, dataset_size: int) -> float:
    r"""The share of anchors that find a twin of theirs among the other rows of a batch: the mean of \( 1 - (1 - t/(N-1))^{B-1} \)."""
    chance = (duplicate_counts.double() / max(dataset_size - 1, 1)).clamp_max(1)
    return float((1 - (1 - chance) ** (batch_size - 1)).mean())


def same_label_rate(labels: Int[Tensor, " n"]) -> float:
    r"""The share of pairs of different samples that share their label: \( \sum_c n_c (n_c - 1) / (n (n - 1)) \)."""
    counts = labels.unique(return_counts=True)[1].double()
    return float((counts * (counts - 1)).sum() / max(len(labels) * (len(labels) - 1), 1))
