"""Training hooks that watch a training for collapse and measure its kNN accuracy."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from nearfar.core import Embeddings
from nearfar.evaluate.geometry import effective_rank, spread
from nearfar.evaluate.knn import knn
from nearfar.train.encode import encode_all
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook

logger = logging.getLogger("nearfar")

MIN_HEALTHY_SPREAD = 0.1
"""Spread below which the rows point nearly the same way. An even sphere has 1."""
MIN_HEALTHY_RANK = 1.5
"""Effective rank below which nearly all variation lies along one line."""
MAX_INSPECTED_ROWS = 256
"""Number of rows of the batch that are inspected."""


class CollapseWatch(Hook):
    """Hook that warns once when the embeddings of the training collapse.

    It inspects the embeddings that the loss receives. It records their spread and effective rank every
    `every_n_steps` steps.
    """

    def __init__(self, every_n_steps: int = 50):
        self.every_n_steps = every_n_steps
        self.warned = False

    @torch.no_grad()
    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        """Record spread and effective rank, and warn at the first collapse."""
        tables = [v for v in z.values() if v.ndim == 2 and v.is_floating_point() and len(v) > 1 and v.shape[1] > 1]
        if not tables or not (session.step % self.every_n_steps == 0 or session.step == session.steps):
            return
        rows = tables[0][:MAX_INSPECTED_ROWS]
        # LossGuard stops a training with a non-finite loss. On CUDA it acts a few steps later.
        if not bool(torch.isfinite(rows).all()):
            return
        found = {"spread": spread(rows), "effective_rank": effective_rank(rows)}
        session.record_metrics(found)
        if not self.warned and (found["spread"] < MIN_HEALTHY_SPREAD or found["effective_rank"] < MIN_HEALTHY_RANK):
            self.warned = True
            logger.warning(
                "the representation is collapsing at step %d: spread %.3f (healthy: about 1), effective rank %.1f of %d. "
                "Try a lower learning rate, stronger views, a larger batch, or a recipe with negatives",
                session.step, found["spread"], found["effective_rank"], rows.shape[1],
            )  # fmt: skip


class KnnWatch(Hook):
    """Hook that measures kNN accuracy on the test split every `every_n_steps` steps.

    It only reports: nothing is chosen by this accuracy.
    """

    def __init__(self, every_n_steps: int, train, test, k: int = 20, temperature: float = 0.07):
        self.every_n_steps, self.train, self.test, self.k, self.temperature = every_n_steps, train, test, k, temperature

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        """Measure and record the kNN accuracy."""
        if session.step % self.every_n_steps and session.step != session.steps:
            return
        features = [encode_all(session.recipe, session.net, data, session.device) for data in (self.train, self.test)]
        found = knn(features[0], self.train.labels, features[1], self.test.labels, self.k, self.temperature)
        session.record_metrics({"knn": found.accuracy, "knn_k": found.k, "knn_tau": found.temperature})
        logger.info("step %d: kNN %.2f %% (k = %d)", session.step, 100 * found.accuracy, found.k)
