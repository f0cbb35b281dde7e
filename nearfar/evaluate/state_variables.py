"""How well a representation tells the state variables of a game: a linear probe for each, scored by F1 (AtariARI).

Variables of an entropy below 0.6 nats hardly change, and are left out. F1 is that of each value of a variable, weighted by how often
the value occurs. Reference: Anand et al., "Unsupervised State Representation Learning in Atari", arXiv:1906.08226.
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
"""At which a probe counts as fitted: variables have up to 256 values, and the F1 of a closer fit is the same."""


@dataclass(frozen=True)
class StateVariableScores:
    """F1 and accuracy of every variable, by name."""

    f1: dict[str, float]
    accuracy: dict[str, float]
    converged: bool = True


def select_informative(values: Int64[np.ndarray, "n v"], variables: tuple[str, ...], min_entropy: float = MIN_ENTROPY_NATS) -> list[int]:
    """The columns that change enough to be asked for."""
    return [i for i in range(len(variables)) if entropy(values[:, i]) >= min_entropy]


def entropy(values: Int64[np.ndarray, " n"]) -> float:
    """In nats."""
    share = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(share * np.log(share)).sum())


def evaluate_converged_probes(
    train_x: Float[Tensor, "n d"], train_y: Int64[np.ndarray, "n v"], test_x: Float[Tensor, "m d"], test_y: Int64[np.ndarray, "m v"],
    variables: tuple[str, ...], C: float = 1.0,
) -> StateVariableScores:  # fmt: skip
    """A logistic regression for each variable on standardised features, to convergence, on the device that these are on."""
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
    """By the benchmark's own probes (see `atari_probe`), which the rows `apart` stop."""
    return _score_answers(fit_atari_probes(train_x, train_y, is_validation, test_x, rng_key), test_y, variables)


def evaluate_majority_baseline(
    train_y: Int64[np.ndarray, "n v"], test_y: Int64[np.ndarray, "m v"], variables: tuple[str, ...]
) -> StateVariableScores:
    """The most frequent value of each variable, always."""
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
