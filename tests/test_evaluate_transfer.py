"""Transfer tasks: folds, selection without the test rows, features of pairs, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from senteval_files import write_senteval
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score as sklearn_f1

from nearfar.core import NearfarError, RandomKey, UsageError
from nearfar.data.text.senteval import read_mrpc, read_sst
from nearfar.evaluate import senteval_transfer as transfer
from nearfar.evaluate.senteval_transfer import (
    SENTEVAL_PENALTIES,
    TRANSFER_TASKS,
    assign_stratified_folds,
    binary_f1,
    build_pair_features,
    cross_validate_task,
    measure_transfer,
)


def first_words(texts: list[str]) -> torch.Tensor:
    """Four hashed counts of letters of the first word: tells the written tasks' classes apart, not the pairs'."""
    return torch.tensor([[len(t.split()[0]), t.count("good"), *(t[:3].count(c) for c in "abdehlmnou")] for t in texts]).float()


def problem(n: int, seed: int, noise: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    y = (x @ np.array([1, -1, 0.5, 0, 0, 0]) + noise * rng.normal(size=n) > 0.3).astype(int)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


@given(st.lists(st.integers(0, 3), min_size=10, max_size=60), st.integers(2, 10))
def test_folds_share_rows_and_classes_evenly(labels, folds):
    y = torch.tensor(labels)
    fold = assign_stratified_folds(y, RandomKey(0), folds)
    assert np.ptp(fold.bincount(minlength=folds).numpy()) <= 1
    for c in y.unique():
        assert np.ptp(fold[y == c].bincount(minlength=folds).numpy()) <= 1


def test_folds_are_keyed_and_possible():
    y = torch.arange(40) % 2
    assert torch.equal(assign_stratified_folds(y, RandomKey(0), 5), assign_stratified_folds(y, RandomKey(0), 5))
    assert not torch.equal(assign_stratified_folds(y, RandomKey(0), 5), assign_stratified_folds(y, RandomKey(1), 5))
    with pytest.raises(NearfarError, match="40 rows cannot be split into 41"):
        assign_stratified_folds(y, RandomKey(0), 41)


def test_cross_validation_is_scikit_learns_on_the_same_folds():
    x, y = problem(90, 0)
    found = cross_validate_task("MR", x, y, RandomKey(3), folds=3, penalties=(0.01, 1.0))
    outer = assign_stratified_folds(y, RandomKey(3)("outer"), 3)
    accuracies, chosen = [], []
    for i in range(3):
        train = (outer != i).numpy()
        a, b = x.numpy()[train], y.numpy()[train]
        inner = assign_stratified_folds(y[outer != i], RandomKey(3)("inner", i), 3).numpy()
        scores = []
        for C in (0.01, 1.0):
            fits = [
                LogisticRegression(C=C, tol=1e-8).fit(a[inner != j], b[inner != j]).score(a[inner == j], b[inner == j]) for j in range(3)
            ]
            scores.append(np.mean(fits))
        chosen.append((0.01, 1.0)[int(np.argmax(scores))])
        accuracies.append(LogisticRegression(C=chosen[-1], tol=1e-8).fit(a, b).score(x.numpy()[~train], y.numpy()[~train]))
    assert found.penalties == tuple(chosen)
    assert found.accuracy == pytest.approx(np.mean(accuracies))
    assert found.fold_std == pytest.approx(np.std(accuracies))
    assert found.majority_accuracy == pytest.approx(max(np.bincount(y)) / 90)


def test_nothing_is_learned_of_rows_that_are_held_out():
    """Features that name their row can only be memorised: held-out rows are then guessed."""
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 2, 200))
    honest = cross_validate_task("MR", torch.eye(200), noise, RandomKey(0), folds=4, penalties=(0.1, 100.0))
    assert honest.accuracy < 0.6


def test_pair_features_and_f1():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert build_pair_features(u, v).tolist() == [[2, 6, 3, -8]]
    assert torch.equal(build_pair_features(u, v), build_pair_features(v, u))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_f1_is_scikit_learns(rows):
    predicted, truth = (torch.tensor(column) for column in zip(*rows, strict=True))
    assert binary_f1(predicted, truth) == pytest.approx(sklearn_f1(truth.numpy(), predicted.numpy(), zero_division=0.0))


@pytest.fixture
def folder(tmp_path):
    return write_senteval(tmp_path)


def test_all_seven_tasks_run_from_the_folder(folder):
    results = {r.task: r for r in measure_transfer(folder, first_words, RandomKey(0), folds=2)}
    assert tuple(results) == TRANSFER_TASKS
    assert results["MR"].accuracy == results["SST"].accuracy == results["TREC"].accuracy == 1, "the first word tells"
    assert results["MR"].fold_std == 0
    assert len(results["MR"].penalties) == 2
    assert results["MRPC"].f1 is not None
    assert results["TREC"].majority_accuracy == pytest.approx(1 / 6)
    assert all(r.f1 is None for task, r in results.items() if task != "MRPC")


def test_official_splits_are_fitted_on_training_rows_and_scored_on_test_rows(folder, monkeypatch):
    fits = []
    real = transfer.fit_linear
    monkeypatch.setattr(transfer, "fit_linear", lambda x, y, C=1.0: fits.append((len(x), C)) or real(x, y, C))
    sst, mrpc = measure_transfer(folder, first_words, RandomKey(0), ("SST", "MRPC"), folds=2)
    n = len(read_sst(folder, "train"))
    assert fits[: len(SENTEVAL_PENALTIES) + 1] == [*((n, C) for C in SENTEVAL_PENALTIES), (n, sst.penalties[0])]
    assert fits[-1] == (len(read_mrpc(folder, "train")), mrpc.penalties[0])


def test_unknown_tasks_are_refused(folder):
    with pytest.raises(UsageError, match="no transfer task 'IMDB'"):
        measure_transfer(folder, first_words, RandomKey(0), ("IMDB",))
