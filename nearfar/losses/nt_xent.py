"""NT-Xent: InfoNCE among all views of a batch."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scalar, Scores


def nt_xent(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], temperature: Scalar = 0.5) -> Float[Tensor, ""]:
    r"""Compute SimCLR's InfoNCE loss over all views of a batch.

    Each of the 2n views has its other view as positive and the remaining 2n - 2 views as negatives:

    \[ \mathcal L = \frac{1}{2n} \sum_i -\log \frac{\exp(\cos(z_i, z_{i'}) / \tau)}{\sum_{j \ne i} \exp(\cos(z_i, z_j) / \tau)} \]

    Here \(i'\) is the other view of the same sample. The temperature divides inside the exponential.

    Relations: `info_nce(Scores.from_views(z0, z1) / temperature).mean()`, which also takes more than two
    views. `clip` compares only across the two sides. Here views of the same side are negatives too.

    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020.
    """
    check_rows(z0=z0, z1=z1)
    check_positive(temperature=temperature)
    return info_nce(Scores.from_views(z0, z1) / temperature).mean()
