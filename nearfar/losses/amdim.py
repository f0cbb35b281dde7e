"""Local and global features of two views, at several scales (AMDIM)."""

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
    r"""The whole of one view finds each place of the other view of the same image among all places of other images:

    \[ \ell_i = -\frac1l \sum_{p=1}^l \log \frac{e^{s(g_i, x_{ip})}}{e^{s(g_i, x_{ip})} + \sum_{j \ne i} \sum_{p'} e^{s(g_i, x_{jp'})}},
       \qquad s(g, x) = g^\top x / \tau \]

    or by another `score`. Places of one's own image do not compete with each other. The paper's tau is \(\sqrt d\).

    Shapes: `local` holds l places for each of n images; gives `(n,)`, 0 for a single image.

    Relations: Deep InfoMax compares within one view; CPC has steps of time for places. With l = 1 it is `info_nce` on `pairs`.

    Reference: Bachman, Hjelm, Buchwalter, Learning Representations by Maximizing Mutual Information Across Views, NeurIPS 2019.
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
    """The sum of `local_global` over scales, averaged over images: AMDIM. Add the same with the views exchanged."""
    return torch.stack([local_global_info_nce(global_features, local, temperature, score).mean() for local in local_features]).sum()
