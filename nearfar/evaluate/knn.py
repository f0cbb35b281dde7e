"""Weighted k-nearest-neighbor classification without training.

The accuracy shows how well distances in the embedding agree with the labels.
"""

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
"""Queries that are compared at once.

1,024 queries against 50,000 training rows take 200 MB of similarities.
"""


@dataclass(frozen=True)
class KnnResult:
    """Accuracy of kNN and the protocol it was measured with.

    `k` is the number of neighbors used, `requested_k` the number requested.
    """

    accuracy: float
    k: int
    requested_k: int
    temperature: float


def knn(train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, k: int = 20, temperature: float = 0.07) -> KnnResult:
    r"""Label each test sample by its `k` most similar training samples.

    The votes are weighted by similarity:

    \[ \hat y = \arg\max_c \sum_{i \in N_k(x)} \mathbb{1}[y_i = c] \, \exp(\cos(x, x_i) / \tau) \]

    `k` is clipped to the number of training samples. Nothing is fitted and nothing is tuned.

    Args:
        train_x: Training features (n, d).
        train_y: Training labels (n,).
        test_x: Test features (m, d).
        test_y: Test labels (m,).
        k: Number of neighbors.
        temperature: Temperature \(\tau\) of the weights.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, 2018 (k =
    200, tau = 0.07); Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021 (k = 20,
    tau = 0.07).
    """
    train, test = check_features(train_x, "training features"), check_features(test_x, "test features")
    classes, known = check_labels(train_y, train, "training labels").unique(return_inverse=True)
    truth = check_labels(test_y, test, "test labels")
    check_positive(temperature=temperature)
    used, correct, start = min(k, len(train)), torch.zeros((), dtype=torch.long, device=test.device), 0
    for similarity, index in _iterate_nearest(train, test, used):
        # Similarities are relative to the nearest row: same vote, but no overflow at a low temperature.
        weight = ((similarity - similarity[:, :1]) / temperature).exp()
        votes = weight.new_zeros(len(weight), len(classes)).scatter_add_(1, known[index], weight)
        correct += (classes[votes.argmax(1)] == truth[start : start + len(votes)]).sum()
        start += len(votes)
    return KnnResult(float(correct) / len(test), used, k, temperature)


def find_nearest_neighbors(train_x: TrainX, test_x: TestX, k: int) -> tuple[Float[Tensor, "m k"], Int[Tensor, "m k"]]:
    """Find the `k` nearest training rows of each test row.

    Returns cosine similarities and indices, nearest first. `k` is clipped to the number of training rows.
    """
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
