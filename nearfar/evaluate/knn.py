"""Weighted nearest neighbours: how well does the nearness of the embedding agree with the labels, with nothing trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError
from nearfar.core.argument_checks import check_positive
from nearfar.evaluate.input_checks import TestX, TestY, TrainX, TrainY, as_features, as_labels

CHUNK = 1024
"""Queries compared at a time: 1,024 against 50,000 training rows are 200 MB of similarities."""


@dataclass(frozen=True)
class Knn:
    """Accuracy and the protocol it was measured under; `k` is what was used, `k_asked` what was asked for."""

    accuracy: float
    k: int
    k_asked: int
    tau: float


def knn(train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, k: int = 20, tau: float = 0.07) -> Knn:
    r"""Each test sample is labelled by its `k` most similar training samples, weighted by similarity:

    \[ \hat y = \arg\max_c \sum_{i \in N_k(x)} \mathbb{1}[y_i = c] \, \exp(\cos(x, x_i) / \tau) \]

    `k` is clipped to the number of training samples. Nothing is fitted and nothing is tuned.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, 2018 (k = 200,
    tau = 0.07); Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021 (k = 20, tau = 0.07).
    """
    train, test = as_features(train_x, "training features"), as_features(test_x, "test features")
    classes, known = as_labels(train_y, train, "training labels").unique(return_inverse=True)
    truth = as_labels(test_y, test, "test labels")
    check_positive(tau=tau)
    used, correct, start = min(k, len(train)), torch.zeros((), dtype=torch.long, device=test.device), 0
    for similarity, index in _nearest_in_chunks(train, test, used):
        # Relative to the nearest one: the same vote, and no overflow at a small tau.
        weight = ((similarity - similarity[:, :1]) / tau).exp()
        votes = weight.new_zeros(len(weight), len(classes)).scatter_add_(1, known[index], weight)
        correct += (classes[votes.argmax(1)] == truth[start : start + len(votes)]).sum()
        start += len(votes)
    return Knn(float(correct) / len(test), used, k, tau)


def nearest(train_x: TrainX, test_x: TestX, k: int) -> tuple[Float[Tensor, "m k"], Int[Tensor, "m k"]]:
    """Cosine similarity and index of the `k` (at most all) nearest training rows of each test row, nearest first."""
    train, test = as_features(train_x, "training features"), as_features(test_x, "test features")
    similarity, index = zip(*_nearest_in_chunks(train, test, min(k, len(train))), strict=True)
    return torch.cat(similarity), torch.cat(index)


def _nearest_in_chunks(train: Tensor, test: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
    if k < 1:
        raise DataError(f"`k` must be at least 1, got {k}")
    train = F.normalize(train, dim=1)
    for queries in F.normalize(test, dim=1).split(CHUNK):
        similarity, index = (queries @ train.T).topk(k, dim=1)
        yield similarity, index
