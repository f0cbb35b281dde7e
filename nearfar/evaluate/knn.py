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
from nearfar.evaluate.input_checks import TestX, TestY, TrainX, TrainY, check_features, check_labels

QUERIES_PER_BLOCK = 1024
"""Queries compared at a time: 1,024 against 50,000 training rows are 200 MB of similarities."""


@dataclass(frozen=True)
class KnnResult:
    """Accuracy and the protocol it was measured under; `k` is what was used, `k_asked` what was asked for."""

    accuracy: float
    k: int
    requested_k: int
    temperature: float


def knn(train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, k: int = 20, temperature: float = 0.07) -> KnnResult:
    r"""Each test sample is labelled by its `k` most similar training samples, weighted by similarity:

    \[ \hat y = \arg\max_c \sum_{i \in N_k(x)} \mathbb{1}[y_i = c] \, \exp(\cos(x, x_i) / \tau) \]

    `k` is clipped to the number of training samples. Nothing is fitted and nothing is tuned.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, 2018 (k = 200,
    tau = 0.07); Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021 (k = 20, tau = 0.07).
    """
    train, test = check_features(train_x, "training features"), check_features(test_x, "test features")
    classes, known = check_labels(train_y, train, "training labels").unique(return_inverse=True)
    truth = check_labels(test_y, test, "test labels")
    check_positive(temperature=temperature)
    used, correct, start = min(k, len(train)), torch.zeros((), dtype=torch.long, device=test.device), 0
    for similarity, index in _iterate_nearest(train, test, used):
        # Relative to the nearest one: the same vote, and no overflow at a small tau.
        weight = ((similarity - similarity[:, :1]) / temperature).exp()
        votes = weight.new_zeros(len(weight), len(classes)).scatter_add_(1, known[index], weight)
        correct += (classes[votes.argmax(1)] == truth[start : start + len(votes)]).sum()
        start += len(votes)
    return KnnResult(float(correct) / len(test), used, k, temperature)


def find_nearest_neighbors(train_x: TrainX, test_x: TestX, k: int) -> tuple[Float[Tensor, "m k"], Int[Tensor, "m k"]]:
    """Cosine similarity and index of the `k` (at most all) nearest training rows of each test row, nearest first."""
    train, test = check_features(train_x, "training features"), check_features(test_x, "test features")
    similarity, index = zip(*_iterate_nearest(train, test, min(k, len(train))), strict=True)
    return torch.cat(similarity), torch.cat(index)


def _iterate_nearest(train: Tensor, test: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
    if k < 1:
        raise DataError(f"`k` must be at least 1, got {k}")
    train = F.normalize(train, dim=1)
    for queries in F.normalize(test, dim=1).split(QUERIES_PER_BLOCK):
        similarity, index = (queries @ train.T).topk(k, dim=1)
        yield similarity, index
