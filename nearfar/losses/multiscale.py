"""Local and global features of two views, at several scales (AMDIM)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.scores import Scalar, Score, Scores, dot


def local_global(g: Float[Tensor, "n d"], local: Float[Tensor, "n l d"], tau: Scalar = 1.0, score: Score = dot) -> Float[Tensor, " n"]:
    r"""The whole of one view finds each place of the other view of the same image among all places of other images:

    \[ \ell_i = -\frac1l \sum_{p=1}^l \log \frac{e^{s(g_i, x_{ip})}}{e^{s(g_i, x_{ip})} + \sum_{j \ne i} \sum_{p'} e^{s(g_i, x_{jp'})}},
       \qquad s(g, x) = g^\top x / \tau \]

    or by another `score`. Places of one's own image do not compete with each other. The paper's tau is \(\sqrt d\).

    Shapes: `local` holds l places for each of n images; gives `(n,)`, 0 for a single image.

    Relations: Deep InfoMax compares within one view; CPC has steps of time for places. With l = 1 it is `info_nce` on `pairs`.

    Reference: Bachman, Hjelm, Buchwalter, Learning Representations by Maximizing Mutual Information Across Views, NeurIPS 2019.
    """
    check_rows(g=g, local=local)
    n, places = local.shape[:2]
    g, local = score.ready(g), score.ready(local.flatten(0, 1))
    image = torch.arange(n, device=g.device)
    others = Scores(g, local, image, image.repeat_interleave(places), score=score) / tau
    positive = score.of_pairs(g.repeat_interleave(places, 0), local).view(n, places) / tau
    return F.softplus(others.neg_lse[:, None] - positive).mean(1)


def multiscale(g: Float[Tensor, "n d"], *scales: Float[Tensor, "n _ d"], tau: Scalar = 1.0, score: Score = dot) -> Float[Tensor, ""]:
    """The sum of `local_global` over scales, averaged over images: AMDIM. Add the same with the views exchanged."""
    return torch.stack([local_global(g, local, tau, score).mean() for local in scales]).sum()
