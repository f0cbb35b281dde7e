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

from nearfar.core import Key
from nearfar.evaluate.input_checks import as_features

RATE, LOWEST_RATE, FACTOR, WAIT = 5e-4, 1e-5, 0.2, 5
"""The learning rate falls by a factor when the validation accuracy has not risen for more than 5 epochs …"""
BATCH, EPOCHS, PATIENCE = 64, 100, 15
"""… and a probe stops when it has not for 15."""
BETAS, EPSILON = (0.9, 0.999), 1e-5


class Probes:
    """v probes side by side, each with its own weights, learning rate and end."""

    def __init__(self, v: int, d: int, c: int, device: torch.device, key: Key):
        slots = torch.arange(v * d, device=device)
        self.weight = ((2 * key("weight").uniform(slots, c) - 1) * d**-0.5).view(v, d, c)
        self.bias = (2 * key("bias").uniform(slots[:v], c) - 1) * d**-0.5
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in (self.weight, self.bias)]
        self.rate = torch.full((v,), RATE, device=device)
        self.steps = 0

    def scores(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "v n c"]:
        return torch.baddbmm(self.bias[:, None], x.expand(len(self.weight), -1, -1), self.weight)

    def step(self, x: Float[Tensor, "n d"], y: Int[Tensor, "v n"]) -> None:
        """One step of Adam on the mean cross-entropy of each probe, whose gradient is the softmax less the truth."""
        wrong = self.scores(x).softmax(2)
        wrong.scatter_add_(2, y[..., None], -torch.ones_like(wrong[..., :1]))
        wrong /= len(x)
        self.steps += 1
        gradients = (x.T.expand(len(wrong), -1, -1) @ wrong, wrong.sum(1))
        for w, (first, second), gradient in zip((self.weight, self.bias), self.moments, gradients, strict=True):
            first.lerp_(gradient, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = (second / (1 - BETAS[1] ** self.steps)).sqrt_().add_(EPSILON)
            w -= self.rate.view(-1, *(1,) * (w.ndim - 1)) / (1 - BETAS[0] ** self.steps) * first / scale


@torch.no_grad()
def fit_probes(
    x: Float[Tensor, "n d"], y: Int64[np.ndarray, "n v"], apart: Bool[np.ndarray, " n"], asked: Float[Tensor, "m d"], key: Key
) -> Int64[np.ndarray, "m v"]:
    """Probes of all columns of `y`, trained on the rows that are not `apart` and stopped by those; their answers to `asked`."""
    x, asked = as_features(x, "training features"), as_features(asked, "test features")
    values, coded = np.unique(y, return_inverse=True)
    target = torch.from_numpy(coded.reshape(y.shape).T.copy()).to(x.device)
    probes = Probes(y.shape[1], x.shape[1], len(values), x.device, key)
    train, held = (torch.from_numpy(np.flatnonzero(part)).to(x.device) for part in (~apart, apart))
    best, falls = torch.full_like(probes.rate, -1.0), torch.full_like(probes.rate, -1.0)
    since, waited = torch.zeros_like(probes.rate), torch.zeros_like(probes.rate)
    for epoch in range(EPOCHS):
        order = train[key("order", epoch).bits(torch.arange(len(train), device=x.device))[:, 0].argsort(stable=True)]
        for start in range(0, max(1, len(order) - BATCH + 1), BATCH):
            rows = order[start : start + BATCH]
            probes.step(x[rows], target[:, rows])
        accuracy = (probes.scores(x[held]).argmax(2) == target[:, held]).float().mean(1)
        since = torch.where(accuracy > best, 0.0, since + 1)
        best = torch.maximum(best, accuracy)
        rose = accuracy > falls * (1 + 1e-4 * falls.sign())
        waited, falls = torch.where(rose, 0.0, waited + 1), torch.where(rose, accuracy, falls)
        slower = waited > WAIT
        waited = torch.where(slower, 0.0, waited)
        probes.rate = torch.where(slower, (FACTOR * probes.rate).clamp_min(LOWEST_RATE), probes.rate)
        probes.rate = torch.where(since >= PATIENCE, 0.0, probes.rate)
        if not probes.rate.any():
            break
    answers = torch.cat([probes.scores(part).argmax(2) for part in asked.split(4096)], dim=1)
    return values[answers.T.cpu().numpy()]
