"""Linear probes trained with the protocol of the AtariARI benchmark.

Adam trains the probes on features that are not standardized. Early stopping on a validation split ends the
training.

Such probes are far from converged where features are small. They measure how easily a variable can be
predicted, and not only if it can be predicted. The published figures come from these probes.

Reference: Anand et al., "Unsupervised State Representation Learning in Atari", arXiv:1906.08226, and its
code.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.input_checks import check_features

LEARNING_RATE, MIN_LEARNING_RATE, LEARNING_RATE_FACTOR, LEARNING_RATE_PATIENCE_EPOCHS = 5e-4, 1e-5, 0.2, 5
"""Schedule of the learning rate: start, minimum, factor and patience.

The learning rate falls by the factor when the validation accuracy has not risen for more than 5 epochs.
"""
PROBE_BATCH_SIZE, MAX_EPOCHS, EARLY_STOPPING_EPOCHS = 64, 100, 15
"""Batch size, maximum number of epochs and patience of early stopping.

A probe stops when its validation accuracy has not risen for 15 epochs.
"""
ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-5


class AtariProbes:
    """Linear probes trained in parallel.

    Each of the v probes has its own weights, learning rate and stop.
    """

    def __init__(self, num_variables: int, dim: int, num_values: int, device: torch.device, rng_key: RandomKey):
        slots = torch.arange(num_variables * dim, device=device)
        self.weight = ((2 * rng_key("weight").uniform(slots, num_values) - 1) * dim**-0.5).view(num_variables, dim, num_values)
        self.bias = (2 * rng_key("bias").uniform(slots[:num_variables], num_values) - 1) * dim**-0.5
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in (self.weight, self.bias)]
        self.learning_rate = torch.full((num_variables,), LEARNING_RATE, device=device)
        self.steps = 0

    def compute_scores(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "v n c"]:
        """Compute the scores of all classes for every probe and sample."""
        return torch.baddbmm(self.bias[:, None], x.expand(len(self.weight), -1, -1), self.weight)

    def step(self, x: Float[Tensor, "n d"], y: Int[Tensor, "v n"]) -> None:
        """Take one Adam step on the mean cross-entropy of each probe.

        The gradient with respect to the scores is the softmax minus the one-hot label.
        """
        wrong = self.compute_scores(x).softmax(2)
        wrong.scatter_add_(2, y[..., None], -torch.ones_like(wrong[..., :1]))
        wrong /= len(x)
        self.steps += 1
        gradients = (x.T.expand(len(wrong), -1, -1) @ wrong, wrong.sum(1))
        for w, (first, second), gradient in zip((self.weight, self.bias), self.moments, gradients, strict=True):
            first.lerp_(gradient, 1 - ADAM_BETAS[0])
            second.mul_(ADAM_BETAS[1]).addcmul_(gradient, gradient, value=1 - ADAM_BETAS[1])
            scale = (second / (1 - ADAM_BETAS[1] ** self.steps)).sqrt_().add_(ADAM_EPSILON)
            w -= self.learning_rate.view(-1, *(1,) * (w.ndim - 1)) / (1 - ADAM_BETAS[0] ** self.steps) * first / scale


@torch.no_grad()
def fit_atari_probes(
    x: Float[Tensor, "n d"],
    y: Int64[np.ndarray, "n v"],
    is_validation: Bool[np.ndarray, " n"],
    test_x: Float[Tensor, "m d"],
    rng_key: RandomKey,
) -> Int64[np.ndarray, "m v"]:
    """Train one probe per variable and predict the test samples.

    Args:
        x: Training and validation features (n, d).
        y: Values of the v variables for each sample (n, v).
        is_validation: True for rows that are not trained on and that stop the probes (n,).
        test_x: Test features (m, d).
        rng_key: Random key for initial weights and batch order.

    Returns:
        Predicted values (m, v).
    """
    x, test_x = check_features(x, "training features"), check_features(test_x, "test features")
    values, coded = np.unique(y, return_inverse=True)
    target = torch.from_numpy(coded.reshape(y.shape).T.copy()).to(x.device)
    probes = AtariProbes(y.shape[1], x.shape[1], len(values), x.device, rng_key)
    train, held = (torch.from_numpy(np.flatnonzero(part)).to(x.device) for part in (~is_validation, is_validation))
    best, falls = torch.full_like(probes.learning_rate, -1.0), torch.full_like(probes.learning_rate, -1.0)
    since, waited = torch.zeros_like(probes.learning_rate), torch.zeros_like(probes.learning_rate)
    for epoch in range(MAX_EPOCHS):
        order = train[rng_key("order", epoch).bits(torch.arange(len(train), device=x.device))[:, 0].argsort(stable=True)]
        for start in range(0, max(1, len(order) - PROBE_BATCH_SIZE + 1), PROBE_BATCH_SIZE):
            rows = order[start : start + PROBE_BATCH_SIZE]
            probes.step(x[rows], target[:, rows])
        accuracy = (probes.compute_scores(x[held]).argmax(2) == target[:, held]).float().mean(1)
        since = torch.where(accuracy > best, 0.0, since + 1)
        best = torch.maximum(best, accuracy)
        rose = accuracy > falls * (1 + 1e-4 * falls.sign())
        waited, falls = torch.where(rose, 0.0, waited + 1), torch.where(rose, accuracy, falls)
        slower = waited > LEARNING_RATE_PATIENCE_EPOCHS
        waited = torch.where(slower, 0.0, waited)
        probes.learning_rate = torch.where(
            slower, (LEARNING_RATE_FACTOR * probes.learning_rate).clamp_min(MIN_LEARNING_RATE), probes.learning_rate
        )
        probes.learning_rate = torch.where(since >= EARLY_STOPPING_EPOCHS, 0.0, probes.learning_rate)
        if not probes.learning_rate.any():
            break
    answers = torch.cat([probes.compute_scores(part).argmax(2) for part in test_x.split(4096)], dim=1)
    return values[answers.T.cpu().numpy()]
