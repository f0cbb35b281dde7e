"""Hooks that look at a training while it runs: is it collapsing, and how good is it so far."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from nearfar.core import Embedded
from nearfar.evaluate.geometry import effective_rank, spread
from nearfar.evaluate.knn import knn
from nearfar.train.encode import encode_all
from nearfar.train.fit import Hook
from nearfar.train.session import Session

log = logging.getLogger("nearfar")

SPREAD = 0.1
"""Below this the rows point nearly the same way; an even sphere has 1."""
RANK = 1.5
"""Below this effective rank nearly all variation lies along one line."""
ROWS = 256
"""How many rows of the batch are looked at."""


class CollapseWatch(Hook):
    """Warns once when the embeddings at the cut fall together, and records spread and effective rank every `every` steps."""

    def __init__(self, every: int = 50):
        self.every = every
        self.warned = False

    @torch.no_grad()
    def step(self, session: Session, values: dict[str, Tensor], z: Embedded) -> None:
        tables = [v for v in z.values() if v.ndim == 2 and v.is_floating_point() and len(v) > 1 and v.shape[1] > 1]
        if not tables or not (session.step % self.every == 0 or session.step == session.steps):
            return
        rows = tables[0][:ROWS]
        if not bool(torch.isfinite(rows).all()):  # LossGuard ends the run; on CUDA it learns of it a few steps later
            return
        found = {"spread": spread(rows), "effective_rank": effective_rank(rows)}
        session.record(found)
        if not self.warned and (found["spread"] < SPREAD or found["effective_rank"] < RANK):
            self.warned = True
            log.warning(
                "the representation is collapsing at step %d: spread %.3f (healthy: about 1), effective rank %.1f of %d. "
                "Try a lower learning rate, stronger views, a larger batch, or a recipe with negatives",
                session.step, found["spread"], found["effective_rank"], rows.shape[1],
            )  # fmt: skip


class EvaluateEvery(Hook):
    """kNN accuracy on the test split every so many steps. Looks only: nothing is chosen by it."""

    def __init__(self, every: int, train, test, k: int = 20, tau: float = 0.07):
        self.every, self.train, self.test, self.k, self.tau = every, train, test, k, tau

    def step(self, session: Session, values: dict[str, Tensor], z: Embedded) -> None:
        if session.step % self.every and session.step != session.steps:
            return
        features = [encode_all(session.recipe, session.net, data, session.device) for data in (self.train, self.test)]
        found = knn(features[0], self.train.labels, features[1], self.test.labels, self.k, self.tau)
        session.record({"knn": found.accuracy, "knn_k": found.k, "knn_tau": found.tau})
        log.info("step %d: kNN %.2f %% (k = %d)", session.step, 100 * found.accuracy, found.k)
