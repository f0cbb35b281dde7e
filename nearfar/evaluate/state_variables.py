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

from nearfar.core import Key
from nearfar.evaluate.atari_probe import fit_probes
from nearfar.evaluate.input_checks import standardised
from nearfar.evaluate.probe import fit_linear

LEAST_ENTROPY = 0.6
TOLERANCE = 1e-4
"""At which a probe counts as fitted: variables have up to 256 values, and the F1 of a closer fit is the same."""


@dataclass(frozen=True)
class Told:
    """F1 and accuracy of every variable, by name."""

    f1: dict[str, float]
    accuracy: dict[str, float]
    converged: bool = True


def informative(values: Int64[np.ndarray, "n v"], variables: tuple[str, ...], least: float = LEAST_ENTROPY) -> list[int]:
    """The columns that change enough to be asked for."""
    return [i for i in range(len(variables)) if entropy(values[:, i]) >= least]


def entropy(values: Int64[np.ndarray, " n"]) -> float:
    """In nats."""
    share = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(share * np.log(share)).sum())


def told_by_probes(
    teach_x: Float[Tensor, "n d"], teach: Int64[np.ndarray, "n v"], test_x: Float[Tensor, "m d"], test: Int64[np.ndarray, "m v"],
    variables: tuple[str, ...], C: float = 1.0,
) -> Told:  # fmt: skip
    """A logistic regression for each variable on standardised features, to convergence, on the device that these are on."""
    x, asked = standardised(teach_x, test_x)
    answers, converged = [], True
    for column in teach.T:
        fitted = fit_linear(x, torch.from_numpy(column.copy()).to(x.device), C, TOLERANCE)
        answers.append(fitted.predict(asked).cpu().numpy())
        converged &= fitted.converged
    return _scored(np.stack(answers, axis=1), test, variables, converged)


def told_as_published(
    teach_x: Float[Tensor, "n d"], teach: Int64[np.ndarray, "n v"], apart: Bool[np.ndarray, " n"], test_x: Float[Tensor, "m d"],
    test: Int64[np.ndarray, "m v"], variables: tuple[str, ...], key: Key,
) -> Told:  # fmt: skip
    """By the benchmark's own probes (see `atari_probe`), which the rows `apart` stop."""
    return _scored(fit_probes(teach_x, teach, apart, test_x, key), test, variables)


def told_by_majority(teach: Int64[np.ndarray, "n v"], test: Int64[np.ndarray, "m v"], variables: tuple[str, ...]) -> Told:
    """The most frequent value of each variable, always."""
    most = [values[counts.argmax()] for values, counts in (np.unique(column, return_counts=True) for column in teach.T)]
    return _scored(np.tile(most, (len(test), 1)), test, variables)


def _scored(answers: Int64[np.ndarray, "m v"], truth: Int64[np.ndarray, "m v"], variables: tuple[str, ...], converged: bool = True) -> Told:
    from sklearn.metrics import f1_score

    how: Any = {"average": "weighted", "zero_division": 0.0}
    f1 = [float(f1_score(t, a, **how)) for t, a in zip(truth.T, answers.T, strict=True)]
    accuracy = (answers == truth).mean(axis=0).tolist()
    return Told(dict(zip(variables, f1, strict=True)), dict(zip(variables, accuracy, strict=True)), converged)
