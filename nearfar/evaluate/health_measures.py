"""Measures that tell a collapsed or damaged representation from a healthy one.

`nearfar.api.diagnose` explains their values. Each measure is a function of tensors. Its scale depends neither
on the method nor on the width: shares, cosines and ratios.
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
"""Distance (`relative_distances`) below which two samples count as the same sample.

It corresponds to a correlation above 0.997 at equal contrast. Of 1,000 test images each of digits, MNIST,
Fashion-MNIST and CIFAR-10, none is this near to a training image. Within 0.01 there are 13 images of
Fashion-MNIST.
"""


def relative_effective_rank(x: Float[Tensor, "n d"]) -> float:
    r"""Return the effective rank of the centered rows divided by its maximum.

    The maximum is \(\min(n - 1, d)\). The value is 1 if all directions vary alike. It is near 0 if a few
    directions hold all variation: dimensional collapse (Jing et al., 2022). Equal rows have no direction and
    give 0.
    """
    require_finite(x, "features")
    centred = x.double() - x.double().mean(0)
    if float(centred.abs().max()) <= torch.finfo(x.dtype).eps * float(x.abs().max()):
        return 0.0
    return effective_rank(centred) / max(1, min(len(x) - 1, x.shape[1]))


def view_match_rate(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> float:
    """Compute the share of views whose nearest neighbor is their partner.

    Each row of `a` is compared with all rows of `b`. Nearest means largest cosine of the centered rows. Ties
    count as misses. Chance is 1 / n. The measure is the task of instance discrimination and shows how
    difficult the views make this task.
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
    r"""Compute the share of negatives that effectively act on an anchor.

    The share is \( \exp(H(w)) / (n - 1) \), averaged over anchors. The softmax weights
    \( w_{ij} \propto \exp(s(a_i, b_j) / \tau) \), \( j \neq i \), are the weights of the negatives in the
    gradient of InfoNCE. The score s is the cosine, or the dot product of the vectors without normalization.

    Near 1, all negatives are pushed away alike, near or far: the temperature is too high. Near 1 / (n - 1),
    only the nearest negative is pushed away.
    """
    require_finite(a, "anchors")
    require_finite(b, "candidates")
    a, b = (a, b) if score == "dot" else (F.normalize(a, dim=1), F.normalize(b, dim=1))
    scores = a @ b.T / temperature
    weight = scores.masked_fill(torch.eye(len(a), dtype=torch.bool, device=a.device), -torch.inf).softmax(1)
    return float((torch.special.entr(weight).sum(1).exp() / (len(a) - 1)).mean())


def relative_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], mean: Float[Tensor, " d"]) -> Float[Tensor, "n m"]:
    r"""Compute squared distances relative to the squared distances from the mean.

    The value is \( \lVert x - y \rVert^2 / (\lVert x - \mu \rVert^2 + \lVert y - \mu \rVert^2) \): 0 for
    equal samples, about 1 for unrelated samples. Two samples that both equal the mean count as equal.
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
    """Count the near duplicates of each row of `x` in the chunks."""
    counts = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for chunk in chunks:
        counts += (relative_distances(x, chunk, mean) < max_distance).sum(1)
    return counts


def in_batch_duplicate_rate(duplicate_counts: Int[Tensor, " n"], batch_size: int, dataset_size: int) -> float:
    r"""Compute the share of anchors with a duplicate in their batch.

    The share is the mean of \( 1 - (1 - t/(N-1))^{B-1} \), with t duplicates of the anchor in a dataset of N
    samples and batch size B.
    """
    chance = (duplicate_counts.double() / max(dataset_size - 1, 1)).clamp_max(1)
    return float((1 - (1 - chance) ** (batch_size - 1)).mean())


def same_label_rate(labels: Int[Tensor, " n"]) -> float:
    r"""Compute the share of pairs with the same label.

    A pair consists of two different samples.
    The share is \( \sum_c n_c (n_c - 1) / (n (n - 1)) \).
    """
    counts = labels.unique(return_counts=True)[1].double()
    return float((counts * (counts - 1)).sum() / max(len(labels) * (len(labels) - 1), 1))
