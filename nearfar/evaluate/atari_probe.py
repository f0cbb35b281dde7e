"""Linear probes as the Atari benchmark trains them: by Adam, on features as they are, until a validation split stops them.

Such probes are far from converged where features are small: what they measure is how easily a variable is told, not only whether it can
be. Published figures are of these. Reference: Anand et al., "Unsupervised State Representation Learning in Atari", arXiv:1906.08226, and
its code.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.input_checks import check_features

LEARNING_RATE, MIN_LEARNING_RATE, LEARNING_RATE_FACTOR, LEARNING_RATE_PATIENCE_EPOCHS = 5e-4, 1e-5, 0.2, 5
"""The learning rate falls by a factor when the validation accuracy has not risen for more than 5 epochs …"""
PROBE_BATCH_SIZE, MAX_EPOCHS, EARLY_STOPPING_EPOCHS = 64, 100, 15
"""… and a probe stops when it has not for 15."""
ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-5


class AtariProbes:
    """v probes side by side, each with its own weights, learning rate and end."""

    def __init__(self, num_variables: int, dim: int, num_values: int, device: torch.device, rng_key: RandomKey):
        slots = torch.arange(num_variables * dim, device=device)
        self.weight = ((2 * rng_key("weight").uniform(slots, num_values) - 1) * dim**-0.5).view(num_variables, dim, num_values)
        self.bias = (2 * rng_key("bias").uniform(slots[:num_variables], num_values) - 1) * dim**-0.5
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in (self.weight, self.bias)]
        self.learning_rate = torch.full((num_variables,), LEARNING_RATE, device=device)
        self.steps = 0

    def compute_scores(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "v n c"]:
        return torch.baddbmm(self.bias[:, None], x.expand(len(self.weight), -1, -1), self.weight)

    def step(self, x: Float[Tensor, "n d"], y: Int[Tensor, "v n"]) -> None:
        """One step of Adam on the mean cross-entropy of each probe, whose gradient is the softmax less the truth."""
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
    """Probes of all columns of `y`, trained on the rows that are not `apart` and stopped by those; their answers to `asked`."""
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
