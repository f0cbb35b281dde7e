"""Area under the ROC curve of cosines: how well vectors tell related pairs from random pairs."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.input_checks import check_features

MAX_RELATED_PAIRS = 20_000
"""Largest number of pairs of each kind."""


def related_pair_auc(vectors: Float[Tensor, "n d"], pairs: Int64[np.ndarray, "p 2"], rng_key: RandomKey) -> float:
    """Return the probability that a related pair has a larger cosine than a random pair.

    Ties count half. 0.5 is chance. At most `MAX_RELATED_PAIRS` pairs are drawn.

    Args:
        vectors: Vectors of all rows, (n, d).
        pairs: Row numbers of related pairs, (p, 2).
        rng_key: Random key of the drawn pairs.
    """
    x = check_features(vectors, "vectors of pairs")
    drawn = pairs[rng_key("related").permutation(len(pairs))[:MAX_RELATED_PAIRS]]
    slots = np.arange(len(drawn))
    random = np.stack([rng_key("random", side).integers(slots, len(x)) for side in (0, 1)], axis=1)
    unit = torch.nn.functional.normalize(x.double(), dim=1).cpu()
    near, far = (np.sort((unit[p[:, 0]] * unit[p[:, 1]]).sum(1).numpy()) for p in (drawn, random.reshape(-1, 2)))
    below, up_to = np.searchsorted(far, near, "left"), np.searchsorted(far, near, "right")
    return float((below + up_to).mean() / 2 / len(far))
