"""InfoNCE between global and local features of two views, at several scales (AMDIM)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.scores import Scalar, Score, Scores, dot


def local_global_info_nce(
    global_features: Float[Tensor, "n d"], local_features: Float[Tensor, "n l d"], temperature: Scalar = 1.0, score: Score = dot
) -> Float[Tensor, " n"]:
    r"""Compute InfoNCE between global features and another view's local features.

    \[ \ell_i = -\frac1l \sum_{p=1}^l \log \frac{e^{s(g_i, x_{ip})}}{e^{s(g_i, x_{ip})} + \sum_{j \ne i} \sum_{p'} e^{s(g_i, x_{jp'})}},
       \qquad s(g, x) = g^\top x / \tau \]

    The global feature of one view is the query. Each place of the other view of the same image is a positive.
    All places of other images are negatives. Places of the same image do not compete with each other. Another
    `score` can replace the dot product. The paper's temperature is \(\sqrt d\).

    Shapes: `local_features` holds l places for each of n images. Returns `(n,)`, 0 for a single image.

    Relations: Deep InfoMax compares within one view. CPC has time steps instead of places. With l = 1 the
    loss equals `info_nce` on `Scores.from_pairs(global_features, local_features[:, 0])`, with the same score
    and temperature.

    Reference: Bachman, Hjelm, Buchwalter, Learning Representations by Maximizing Mutual Information Across
    Views, NeurIPS 2019.
    """
    check_rows(global_features=global_features, local_features=local_features)
    n, places = local_features.shape[:2]
    global_features, local_features = score.prepare_vectors(global_features), score.prepare_vectors(local_features.flatten(0, 1))
    image = torch.arange(n, device=global_features.device)
    others = Scores(global_features, local_features, image, image.repeat_interleave(places), score=score) / temperature
    positive = score.score_pairs(global_features.repeat_interleave(places, 0), local_features).view(n, places) / temperature
    return F.softplus(others.neg_lse[:, None] - positive).mean(1)


def amdim(
    global_features: Float[Tensor, "n d"], *local_features: Float[Tensor, "n _ d"], temperature: Scalar = 1.0, score: Score = dot
) -> Float[Tensor, ""]:
    """Compute the AMDIM loss: `local_global_info_nce` summed over scales.

    Each scale is averaged over images. For the symmetric loss, add the same loss with the views exchanged.
    """
    return torch.stack([local_global_info_nce(global_features, local, temperature, score).mean() for local in local_features]).sum()
