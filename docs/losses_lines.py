"""Losses in row statistics, as code: the page shows the lines, a test compares them with the losses."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu

from nearfar.losses import binary_nce, classes, info_nce, info_nce_in, ranking, sigmoid, triplet_sums
from nearfar.scores import Scores, Statistic, bilinear, cosine, dot, labelled, listed, matched, pairs, squared_euclidean, unit, views


def lse(S: Scores, side: Any, power: float) -> Tensor:
    return S.stats(Statistic(side, "lse", power))[0]


LINES: dict[str, Callable[..., Tensor]] = {
    "info_nce": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "info_nce_in": lambda S: S.all_lse - S.pos_lse,
    "supcon": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "ranking_nce": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "nt_xent": lambda z0, z1, tau: info_nce(views(z0, z1) / tau).mean(),
    "n_pair": lambda a, b: info_nce(pairs(a, b, score=dot)).mean(),
    "simcse": lambda h0, h1, tau: info_nce(pairs(h0, h1) / tau).mean(),
    "simcse_supervised": lambda h, positive, negative, tau: info_nce(pairs(h, torch.cat([positive, negative])) / tau).mean(),
    "clip": lambda a, b, scale: (
        (pairs(a, b) * scale).all_lse.mean() / 2 + (pairs(b, a) * scale).all_lse.mean() / 2 - (pairs(a, b) * scale).pos_sum.mean()
    ),
    "dpr": lambda question, passage: info_nce(pairs(question, passage, score=dot)).mean(),
    "cpc": lambda context, future, weights: torch.stack(
        [info_nce(pairs(context, z, score=bilinear(w.T))).mean() for z, w in zip(future, weights, strict=True)]
    ),
    "parametric_softmax": lambda z, weights, y: info_nce(classes(z, weights, y)),
    "instance_softmax": lambda z, bank, ids, tau: info_nce(classes(z, bank, ids, score=cosine) / tau),
    "proto_nce": lambda S, v, clusterings: (
        info_nce(S) + sum(info_nce(classes(unit(v), unit(c) / phi[:, None], at)) for c, phi, at in clusterings) / len(clusterings)
    ),
    "soft_nearest_neighbours": lambda z, y, tau: info_nce_in(labelled(z, y, score=squared_euclidean) / tau).mean(),
    "debiased": lambda S, eta: torch.log1p(
        ((S.neg_lse.exp() - eta * S.neg_count * S.pos_lse.exp() / S.pos_count) / (1 - eta)).clamp_min(S.neg_count * math.exp(S.lowest))
        * (S.pos_count / S.pos_lse.exp())
    ),
    "hard_negative": lambda S, eta, beta: torch.log1p(
        torch.maximum(
            (lse(S, "neg", 1 + beta) - lse(S, "neg", beta)).exp() - eta * (lse(S, "pos", 1 + beta) - lse(S, "pos", beta)).exp(),
            (1 - eta) * torch.tensor(S.lowest).exp(),
        )
        * (S.neg_count / (1 - eta) * S.pos_count / S.pos_lse.exp())
    ),
    "sigmoid": lambda S: S.pos_softplus + S.neg_softplus,
    "nt_logistic": lambda z0, z1, tau: sigmoid(views(z0, z1) / tau).mean(),
    "negative_sampling": lambda centre, context, noise: sigmoid(
        listed((centre * context).sum(1, keepdim=True), (noise @ centre[:, :, None])[:, :, 0])
    ),
    "binary_nce": lambda S, m: (S + -math.log(m)).pos_softplus / S.pos_count + m * (S + -math.log(m)).neg_softplus / S.neg_count,
    "nce": lambda data, noise: binary_nce(listed(data[None], noise[None]), len(noise) / len(data))[0],
    "instance_nce": lambda S, total, m, log_z: binary_nce(S + (math.log(total) - log_z), m),
    "crd": lambda student, teacher, against, total, tau: binary_nce(
        matched(student, teacher, against=against) / tau + math.log(total), len(against)
    ),
    "jsd_bound": lambda S: -S.pos_softplus.sum() / S.pos_count.sum() - S.neg_softplus.sum() / S.neg_count.sum(),
    "dv_bound": lambda S: S.pos_sum.sum() / S.pos_count.sum() - S.neg_lse.logsumexp(0) + S.neg_count.sum().log(),
    "nwj_bound": lambda S: S.pos_sum.sum() / S.pos_count.sum() - (S.neg_lse.logsumexp(0) - 1).exp() / S.neg_count.sum(),
    "info_nce_bound": lambda S: (S.all_count.log() - info_nce(S)).mean(),
    "uniformity": lambda z, t: (views(z) * (2 * t) + -2 * t).neg_lse.logsumexp(0) - math.log(len(z) * (len(z) - 1)),
    "lifted_generalised": lambda S, margin: relu(lse(S, "pos", -1) + S.neg_lse + margin),
    "ranking": lambda S, margin: triplet_sums(S, margin)[0] / (S.pos_count * S.neg_count),
    "lmnn": lambda S, margin, mu: mu * triplet_sums(S, margin)[0] - (1 - mu) * S.pos_sum,
    "nt_margin": lambda z0, z1, margin: ranking(views(z0, z1), margin).mean(),
    "translation_hinge": lambda pos, neg, gamma: ranking(listed(-pos[:, None], -neg), gamma),
}
"""The loss in statistics, or as a table handed to one that is; the parameters are those of the loss."""


def written_lines() -> dict[str, str]:
    """The code of `LINES`, by name."""
    for node in ast.parse(inspect.getsource(sys.modules[__name__])).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LINES" and isinstance(node.value, ast.Dict):
            pairs_of = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): ast.unparse(value.body) for key, value in pairs_of if key and isinstance(value, ast.Lambda)}
    raise AssertionError("LINES is not where it was")
