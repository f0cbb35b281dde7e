"""SentEval's transfer tasks: logistic regression on frozen sentence vectors.

The penalty is chosen without the test rows:

    MR CR SUBJ MPQA    no official split: 10 folds; in each, 10 folds of the other nine choose the penalty
    TREC MRPC          official test split; 10 folds of the training split choose the penalty
    SST                official train, development and test splits; the development split chooses the penalty

A pair (u, v) of MRPC becomes (|u - v|, u * v). Vectors are not standardized, as in SentEval.

Reference: Conneau & Kiela, SentEval: An Evaluation Toolkit for Universal Sentence Representations, LREC 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core import NearfarError, RandomKey, UsageError
from nearfar.data.text.senteval import LabeledPairs, LabeledSentences, read_binary_task, read_mrpc, read_sst, read_trec
from nearfar.evaluate.input_checks import check_features
from nearfar.evaluate.probe import fit_linear
from nearfar.evaluate.sts import EncodeSentences

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")
FOLDS = 10
SENTEVAL_PENALTIES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Candidates for the inverse penalty C for SST and tasks without a test split, as in SentEval."""
TREC_MRPC_PENALTIES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Candidates for the inverse penalty C for TREC and MRPC, as in SentEval."""


@dataclass(frozen=True)
class TransferResult:
    """Result of one transfer task, measured on test rows.

    Attributes:
        task: Name of the task.
        accuracy: Accuracy on test rows.
        f1: F1 of class 1 for MRPC, None for other tasks.
        fold_std: Standard deviation over the outer folds, None for tasks with an official split.
        penalties: The C chosen in each fit.
        majority_accuracy: Accuracy of the majority class.
    """

    task: str
    accuracy: float
    f1: float | None
    fold_std: float | None
    penalties: tuple[float, ...]
    majority_accuracy: float
    """Accuracy of always predicting the most frequent class: the lowest baseline."""


def measure_transfer(
    folder: str | Path, encode: EncodeSentences, rng_key: RandomKey, tasks: Sequence[str] = TRANSFER_TASKS, folds: int = FOLDS
) -> list[TransferResult]:
    """Measure transfer tasks of SentEval's folder, in the given order.

    `folds` is the number of outer and of inner folds.
    """
    unknown = [task for task in tasks if task not in TRANSFER_TASKS]
    if unknown:
        raise UsageError(f"there is no transfer task {unknown[0]!r}: use {', '.join(TRANSFER_TASKS)}")
    return [_measure(Path(folder), task, encode, rng_key("transfer", task), folds) for task in tasks]


def _measure(folder: Path, task: str, encode: EncodeSentences, rng_key: RandomKey, folds: int) -> TransferResult:
    if task == "SST":
        train, dev, test = (_encode_task(read_sst(folder, split), encode) for split in ("train", "dev", "test"))
        scores = torch.tensor([_accuracy(*train, *dev, C) for C in SENTEVAL_PENALTIES])
        return _evaluate_official_split(task, train, test, SENTEVAL_PENALTIES[int(scores.argmax())])
    if task in ("TREC", "MRPC"):
        read = read_trec if task == "TREC" else read_mrpc
        train, test = _encode_task(read(folder, "train"), encode), _encode_task(read(folder, "test"), encode)
        return _evaluate_official_split(task, train, test, cross_validate_penalty(*train, TREC_MRPC_PENALTIES, rng_key, folds))
    return cross_validate_task(task, *_encode_task(read_binary_task(folder, task), encode), rng_key, folds)


def _evaluate_official_split(task: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], C: float) -> TransferResult:
    predicted = fit_linear(*train, C).predict(test[0])
    f1 = binary_f1(predicted, test[1]) if task == "MRPC" else None
    return TransferResult(task, _compute_accuracy(predicted == test[1]), f1, None, (C,), _compute_majority_accuracy(test[1]))


def cross_validate_task(
    task: str,
    x: Float[Tensor, "n d"],
    y: Int[Tensor, " n"],
    rng_key: RandomKey,
    folds: int = FOLDS,
    penalties: Sequence[float] = SENTEVAL_PENALTIES,
) -> TransferResult:
    """Measure a task by nested cross-validation.

    Every row is a test row once. The penalty of each outer fold is chosen within its training rows.
    """
    fold = assign_stratified_folds(y, rng_key("outer"), folds)
    accuracies, chosen = [], []
    for i in range(folds):
        train, test = fold != i, fold == i
        C = cross_validate_penalty(x[train], y[train], penalties, rng_key("inner", i), folds)
        accuracies.append(_accuracy(x[train], y[train], x[test], y[test], C))
        chosen.append(C)
    return TransferResult(task, float(np.mean(accuracies)), None, float(np.std(accuracies)), tuple(chosen), _compute_majority_accuracy(y))


def cross_validate_penalty(
    x: Float[Tensor, "n d"], y: Int[Tensor, " n"], penalties: Sequence[float], rng_key: RandomKey, folds: int = FOLDS
) -> float:
    """Choose the C with the best mean accuracy over folds of the rows.

    Ties go to the first candidate.
    """
    fold = assign_stratified_folds(y, rng_key, folds)
    mean_accuracies = []
    for C in penalties:
        accuracies = [_accuracy(x[fold != i], y[fold != i], x[fold == i], y[fold == i], C) for i in range(folds)]
        mean_accuracies.append(float(np.mean(accuracies)))
    return penalties[int(np.argmax(mean_accuracies))]


def assign_stratified_folds(y: Int[Tensor, " n"], rng_key: RandomKey, folds: int) -> Int[Tensor, " n"]:
    """Assign each row to a fold at random, with balanced classes.

    The fold sizes differ by at most one. The number of samples of a class also differs by at most one between
    folds.
    """
    if not 2 <= folds <= len(y):
        raise NearfarError(f"{len(y)} rows cannot be split into {folds} folds")
    shuffled = torch.from_numpy(rng_key.permutation(len(y))).to(y.device)
    by_class = shuffled[y[shuffled].argsort(stable=True)]
    fold = torch.empty_like(by_class)
    fold[by_class] = torch.arange(len(y), device=y.device) % folds
    return fold


def build_pair_features(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
    """Build symmetric features of pairs of vectors.

    The features (|u - v|, u * v) are the same for (u, v) and (v, u), like the label of a paraphrase.
    """
    return torch.cat([(u - v).abs(), u * v], dim=1)


def binary_f1(predicted: Int[Tensor, " n"], truth: Int[Tensor, " n"]) -> float:
    """Compute the harmonic mean of precision and recall of class 1.

    The value is 0 if class 1 is neither predicted nor present.
    """
    hits = ((predicted == 1) & (truth == 1)).sum()
    named = (predicted == 1).sum() + (truth == 1).sum()
    return float(2 * hits / named.clamp_min(1))


def _encode_task(data: LabeledSentences | LabeledPairs, encode: EncodeSentences) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return features and labels of a task. Each distinct text is encoded once."""
    sides = [data.texts] if isinstance(data, LabeledSentences) else [data.first, data.second]
    texts = list(dict.fromkeys(text for side in sides for text in side))
    row = {text: i for i, text in enumerate(texts)}
    vectors = check_features(encode(texts), "embeddings")
    x = [vectors[torch.tensor([row[text] for text in side], device=vectors.device)] for side in sides]
    return build_pair_features(*x) if len(x) == 2 else x[0], torch.from_numpy(data.labels).to(vectors.device)


def _accuracy(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, C: float) -> float:
    return _compute_accuracy(fit_linear(x, y, C).predict(test_x) == test_y)


def _compute_majority_accuracy(y: Tensor) -> float:
    return float(y.bincount().max() / len(y))


def _compute_accuracy(hits: Tensor) -> float:
    return float(hits.double().mean())
