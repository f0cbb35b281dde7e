"""Multilabel classification: one logistic regression per group, and F1 as in DeepWalk and node2vec.

A sample may be in several groups. A share of the labeled samples is drawn for training, and the other labeled
samples are for testing. For a sample in k groups, the prediction is its k groups with the best scores: the
number of groups is given, and the groups are not. Macro-F1 is the mean over groups, micro-F1 the F1 of all
predictions together.

Reference: Tang & Liu, Relational Learning via Latent Social Dimensions, KDD 2009; Perozzi et al., DeepWalk,
KDD 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError, RandomKey
from nearfar.core.argument_checks import check_positive
from nearfar.evaluate.input_checks import check_features, check_label_matrix

MAX_LBFGS_STEPS, LBFGS_TOLERANCE = 300, 1e-4
"""Stopping rule of L-BFGS: maximum number of steps and tolerance of the gradient.

The tolerance is the largest entry of the gradient, in the coordinates of the search.
"""


@dataclass(frozen=True)
class MultilabelF1:
    """Means and standard deviations of F1 over the draws."""

    macro: float
    micro: float
    macro_std: float
    micro_std: float
    train_fraction: float
    draws: int


def multilabel_f1(
    x: Float[Tensor, "n d"],
    labels: Bool[Tensor, "n g"],
    *,
    rng_key: RandomKey,
    train_fraction: float = 0.5,
    draws: int = 10,
    C: float = 1.0,
) -> MultilabelF1:
    """Compute F1 over `draws` random splits of the labeled samples.

    Args:
        x: Features (n, d).
        labels: Groups of each sample (n, g). Samples without a group are left out.
        rng_key: Random key of the splits.
        train_fraction: Share of the labeled samples for training. The rest is for testing.
        draws: Number of splits.
        C: Inverse penalty of the logistic regressions.
    """
    x = check_features(x)
    labels = check_label_matrix(labels, x)
    if draws < 1:
        raise DataError(f"`draws` must be at least 1, got {draws}")
    labelled = labels.any(1).nonzero()[:, 0]
    count = round(train_fraction * len(labelled))
    if not 0 < count < len(labelled):
        raise DataError(
            f"a share of {train_fraction:g} of {len(labelled)} labeled samples leaves no samples for training or none for testing"
        )
    found = []
    for draw in range(draws):
        order = labelled[torch.from_numpy(rng_key("draw", draw).permutation(len(labelled))).to(labelled.device)]
        train, test = order[:count], order[count:]
        weight, bias = fit_one_vs_rest(x[train], labels[train], C)
        found.append(top_k_f1(x[test].double() @ weight.T + bias, labels[test]))
    macro, micro = np.array(found).T
    macro_std, micro_std = (float(v.std(ddof=1)) if draws > 1 else 0.0 for v in (macro, micro))
    return MultilabelF1(float(macro.mean()), float(micro.mean()), macro_std, micro_std, train_fraction, draws)


def top_k_f1(scores: Float[Tensor, "n g"], truth: Bool[Tensor, "n g"]) -> tuple[float, float]:
    """Return macro-F1 and micro-F1 of the best-scored groups of each sample.

    The number of predicted groups of a sample is its number of true groups. A group without samples and
    predictions has F1 = 0.
    """
    check_features(scores, "scores of groups")
    place = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    answer = place < truth.sum(1, keepdim=True)
    right, said, true = (m.sum(0).double() for m in (answer & truth, answer, truth))
    each = 2 * right / (said + true).clamp_min(1)
    return float(each.mean()), float(2 * right.sum() / (said + true).sum().clamp_min(1))


def fit_one_vs_rest(
    x: Float[Tensor, "n d"], labels: Bool[Tensor, "n g"], C: float = 1.0
) -> tuple[Float64[Tensor, "g d"], Float64[Tensor, " g"]]:
    r"""Fit a logistic regression for each group.

    L-BFGS fits all groups at once. The weights minimize
    \(\sum_i \mathrm{softplus}(\mp (w^\top x_i + b)) + \lVert w \rVert^2 / 2C\), the objective of
    scikit-learn's `LogisticRegression(C)` for each group.

    The search runs along the principal directions of x. Each direction is scaled by the initial curvature
    along it for a group of that size. This makes the problem so well conditioned that some tens of steps are
    enough. Products with `x` are float32, everything else is float64.

    Returns:
        Weights (g, d) and biases (g,).
    """
    check_positive(C=C)
    x = check_features(x)
    mean = x.mean(0)
    variance, directions = torch.linalg.eigh((x - mean).double().T @ (x - mean).double())
    rows, y = (x - mean) @ directions.float(), labels.double()
    share = (y.mean(0) * (1 - y.mean(0))).clamp_min(1 / len(x) ** 2)[:, None]
    unit, unit_b = (share * variance.clamp_min(0) + 1 / C).rsqrt(), (share[:, 0] * len(x)).rsqrt()
    v, u = torch.zeros_like(unit, requires_grad=True), torch.zeros_like(unit_b, requires_grad=True)
    search = torch.optim.LBFGS(
        [v, u], max_iter=MAX_LBFGS_STEPS, tolerance_grad=LBFGS_TOLERANCE, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        search.zero_grad()
        scores = (rows @ (v * unit).float().T).double() + u * unit_b
        loss = (F.softplus(scores) - y * scores).sum() + (v * unit).square().sum() / (2 * C)
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(objective)
    weight = ((v * unit) @ directions.T).detach()
    return weight, (u * unit_b).detach() - weight @ mean.double()
