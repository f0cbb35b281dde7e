"""Prediction of a game's state variables from features: one linear probe per variable (AtariARI).

F1 is computed for each value of a variable and weighted by the frequency of the value. Variables with an
entropy below 0.6 nats hardly change and are left out.

Reference: Anand et al., "Unsupervised State Representation Learning in Atari", arXiv:1906.08226.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.atari_probe import fit_atari_probes
from nearfar.evaluate.input_checks import standardize_columns
from nearfar.evaluate.probe import fit_linear

MIN_ENTROPY_NATS = 0.6
PROBE_TOLERANCE = 1e-4
"""Gradient tolerance at which a probe stops.

Variables have up to 256 values, and a closer fit gives the same F1.
"""


@dataclass(frozen=True)
class StateVariableScores:
    """F1 and accuracy of every variable, by name."""

    f1: dict[str, float]
    accuracy: dict[str, float]
    converged: bool = True


def select_informative(values: Int64[np.ndarray, "n v"], variables: tuple[str, ...], min_entropy: float = MIN_ENTROPY_NATS) -> list[int]:
    """Return the columns whose entropy is at least `min_entropy`."""
    return [i for i in range(len(variables)) if entropy(values[:, i]) >= min_entropy]


def entropy(values: Int64[np.ndarray, " n"]) -> float:
    """Compute the entropy of a variable in nats."""
    share = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(share * np.log(share)).sum())


def evaluate_converged_probes(
    train_x: Float[Tensor, "n d"], train_y: Int64[np.ndarray, "n v"], test_x: Float[Tensor, "m d"], test_y: Int64[np.ndarray, "m v"],
    variables: tuple[str, ...], C: float = 1.0,
) -> StateVariableScores:  # fmt: skip
    """Fit and score a logistic regression for each variable.

    The fit runs to convergence. Features are standardized. The fit runs on the device of the features.
    """
    x, asked = standardize_columns(train_x, test_x)
    answers, converged = [], True
    for column in train_y.T:
        fitted = fit_linear(x, torch.from_numpy(column.copy()).to(x.device), C, PROBE_TOLERANCE)
        answers.append(fitted.predict(asked).cpu().numpy())
        converged &= fitted.converged
    return _score_answers(np.stack(answers, axis=1), test_y, variables, converged)


def evaluate_atari_probes(
    train_x: Float[Tensor, "n d"], train_y: Int64[np.ndarray, "n v"], is_validation: Bool[np.ndarray, " n"], test_x: Float[Tensor, "m d"],
    test_y: Int64[np.ndarray, "m v"], variables: tuple[str, ...], rng_key: RandomKey,
) -> StateVariableScores:  # fmt: skip
    """Score the benchmark's own probes (see `atari_probe`).

    The validation rows (`is_validation`) stop their training.
    """
    return _score_answers(fit_atari_probes(train_x, train_y, is_validation, test_x, rng_key), test_y, variables)


def evaluate_majority_baseline(
    train_y: Int64[np.ndarray, "n v"], test_y: Int64[np.ndarray, "m v"], variables: tuple[str, ...]
) -> StateVariableScores:
    """Score the baseline that always predicts the most frequent value."""
    most = [values[counts.argmax()] for values, counts in (np.unique(column, return_counts=True) for column in train_y.T)]
    return _score_answers(np.tile(most, (len(test_y), 1)), test_y, variables)


def _score_answers(
    answers: Int64[np.ndarray, "m v"], truth: Int64[np.ndarray, "m v"], variables: tuple[str, ...], converged: bool = True
) -> StateVariableScores:
    from sklearn.metrics import f1_score

    how: Any = {"average": "weighted", "zero_division": 0.0}
    f1 = [float(f1_score(t, a, **how)) for t, a in zip(truth.T, answers.T, strict=True)]
    accuracy = (answers == truth).mean(axis=0).tolist()
    return StateVariableScores(dict(zip(variables, f1, strict=True)), dict(zip(variables, accuracy, strict=True)), converged)
