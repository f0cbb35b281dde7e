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

from nearfar.losses import binary_nce, build_class_scores, info_nce, mil_nce, ranking_hinge, sigmoid, sum_triplet_hinges
from nearfar.scores import Scores, Statistic, bilinear, cosine, dot, l2_normalize, squared_euclidean


def lse(S: Scores, side: Any, power: float) -> Tensor:
    return S.stats(Statistic(side, "lse", power))[0]


LINES: dict[str, Callable[..., Tensor]] = {
    "info_nce": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "mil_nce": lambda S: S.all_lse - S.pos_lse,
    "supcon": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "ranking_nce": lambda S: S.all_lse - S.pos_sum / S.pos_count,
    "nt_xent": lambda z0, z1, temperature: info_nce(Scores.from_views(z0, z1) / temperature).mean(),
    "n_pair": lambda a, b: info_nce(Scores.from_pairs(a, b, score=dot)).mean(),
    "simcse": lambda z0, z1, temperature: info_nce(Scores.from_pairs(z0, z1) / temperature).mean(),
    "simcse_supervised": lambda anchor, positive, negative, temperature: info_nce(
        Scores.from_pairs(anchor, torch.cat([positive, negative])) / temperature
    ).mean(),
    "clip": lambda a, b, scale: (
        (Scores.from_pairs(a, b) * scale).all_lse.mean() / 2
        + (Scores.from_pairs(b, a) * scale).all_lse.mean() / 2
        - (Scores.from_pairs(a, b) * scale).pos_sum.mean()
    ),
    "dpr": lambda question, passage: info_nce(Scores.from_pairs(question, passage, score=dot)).mean(),
    "cpc": lambda context, future, weights: torch.stack(
        [info_nce(Scores.from_pairs(context, z, score=bilinear(w.T))).mean() for z, w in zip(future, weights, strict=True)]
    ),
    "parametric_softmax": lambda z, class_vectors, labels: info_nce(build_class_scores(z, class_vectors, labels)),
    "instance_softmax": lambda z, bank, ids, temperature: info_nce(build_class_scores(z, bank, ids, score=cosine) / temperature),
    "proto_nce": lambda S, z, clusterings: (
        info_nce(S)
        + sum(info_nce(build_class_scores(l2_normalize(z), l2_normalize(c) / phi[:, None], at)) for c, phi, at in clusterings)
        / len(clusterings)
    ),
    "soft_nearest_neighbors": lambda z, labels, temperature: mil_nce(
        Scores.from_labels(z, labels, score=squared_euclidean) / temperature
    ).mean(),
    "debiased": lambda S, false_negative_share: torch.log1p(
        ((S.neg_lse.exp() - false_negative_share * S.neg_count * S.pos_lse.exp() / S.pos_count) / (1 - false_negative_share)).clamp_min(
            S.neg_count * math.exp(S.lowest)
        )
        * (S.pos_count / S.pos_lse.exp())
    ),
    "hard_negative": lambda S, false_negative_share, hardness: torch.log1p(
        torch.maximum(
            (lse(S, "neg", 1 + hardness) - lse(S, "neg", hardness)).exp()
            - false_negative_share * (lse(S, "pos", 1 + hardness) - lse(S, "pos", hardness)).exp(),
            (1 - false_negative_share) * torch.tensor(S.lowest).exp(),
        )
        * (S.neg_count / (1 - false_negative_share) * S.pos_count / S.pos_lse.exp())
    ),
    "sigmoid": lambda S: S.pos_softplus + S.neg_softplus,
    "nt_logistic": lambda z0, z1, temperature: sigmoid(Scores.from_views(z0, z1) / temperature).mean(),
    "negative_sampling": lambda center, context, noise: sigmoid(
        Scores.from_lists((center * context).sum(1, keepdim=True), (noise @ center[:, :, None])[:, :, 0])
    ),
    "binary_nce": lambda S, noise_ratio: (
        (S + -math.log(noise_ratio)).pos_softplus / S.pos_count + noise_ratio * (S + -math.log(noise_ratio)).neg_softplus / S.neg_count
    ),
    "nce": lambda data, noise: binary_nce(Scores.from_lists(data[None], noise[None]), len(noise) / len(data))[0],
    "instance_nce": lambda S, num_samples, noise_ratio, log_partition: binary_nce(S + (math.log(num_samples) - log_partition), noise_ratio),
    "crd": lambda student, teacher, negatives, num_samples, temperature: binary_nce(
        Scores.from_matched(student, teacher, negatives=negatives) / temperature + math.log(num_samples), len(negatives)
    ),
    "jsd_bound": lambda S: -S.pos_softplus.sum() / S.pos_count.sum() - S.neg_softplus.sum() / S.neg_count.sum(),
    "dv_bound": lambda S: S.pos_sum.sum() / S.pos_count.sum() - S.neg_lse.logsumexp(0) + S.neg_count.sum().log(),
    "nwj_bound": lambda S: S.pos_sum.sum() / S.pos_count.sum() - (S.neg_lse.logsumexp(0) - 1).exp() / S.neg_count.sum(),
    "info_nce_bound": lambda S: (S.all_count.log() - info_nce(S)).mean(),
    "uniformity": lambda z, kernel_coefficient: (
        (Scores.from_views(z) * (2 * kernel_coefficient) + -2 * kernel_coefficient).neg_lse.logsumexp(0) - math.log(len(z) * (len(z) - 1))
    ),
    "lifted_structure_generalized": lambda S, margin: relu(lse(S, "pos", -1) + S.neg_lse + margin),
    "ranking_hinge": lambda S, margin: sum_triplet_hinges(S, margin)[0] / (S.pos_count * S.neg_count),
    "lmnn": lambda S, margin, push_weight: push_weight * sum_triplet_hinges(S, margin)[0] - (1 - push_weight) * S.pos_sum,
    "nt_margin": lambda z0, z1, margin: ranking_hinge(Scores.from_views(z0, z1), margin).mean(),
    "translation_hinge": lambda pos_distances, neg_distances, margin: ranking_hinge(
        Scores.from_lists(-pos_distances[:, None], -neg_distances), margin
    ),
}
"""The loss in statistics, or as a table handed to one that is; the parameters are those of the loss."""


def written_lines() -> dict[str, str]:
    """The code of `LINES`, by name."""
    for node in ast.parse(inspect.getsource(sys.modules[__name__])).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LINES" and isinstance(node.value, ast.Dict):
            pairs_of = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): ast.unparse(value.body) for key, value in pairs_of if key and isinstance(value, ast.Lambda)}
    raise AssertionError("LINES is not where it was")
