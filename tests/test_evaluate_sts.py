"""Sentence similarity: correlations against scipy, protocols against loops, floors, and the bootstrap's honesty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from senteval_files import write_senteval

from nearfar.core import NearfarError, RandomKey
from nearfar.data.text.senteval import STS_SETS, GradedPairs, read_sts
from nearfar.evaluate.correlation import spearman
from nearfar.evaluate.lexical_baselines import build_random_word_encoder, ngram_jaccard, tf_idf_cosine
from nearfar.evaluate.sts import build_cosine_scorer, compare_sts, measure_sts, read_sts_sets, render_sts


def letters(texts: list[str]) -> torch.Tensor:
    """An honest little encoder: how often each letter occurs."""
    return torch.tensor([[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts], dtype=torch.float32)


@pytest.fixture
def sets(tmp_path):
    return read_sts_sets(write_senteval(tmp_path))


# --- Spearman ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(-2, 2, width=32)), min_size=3, max_size=40))
def test_spearman_with_ties_is_scipys(rows):
    a, b = np.array([r[0] for r in rows], dtype=float), np.array([r[1] for r in rows])
    found = float(spearman(torch.tensor(a), torch.tensor(b)))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert found == 0
    else:
        assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_spearman_orders_numbers_only():
    order = torch.arange(4.0)
    for broken in (torch.tensor([0.0, 1.0, 2.0, float("nan")]), torch.tensor([0.0, 1.0, 2.0, float("inf")])):
        for pair in ((order, broken), (broken, order)):
            with pytest.raises(NearfarError, match=r"spearman, (first|second) values: 1 of 4 rows hold NaN or infinity"):
                spearman(*pair)


def test_spearman_of_samples_is_that_of_the_repeated_rows():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 30).astype(float), rng.normal(size=30)
    chosen = rng.integers(0, 30, (20, 30))
    counts = torch.tensor(np.array([np.bincount(c, minlength=30) for c in chosen]), dtype=torch.float64)
    found = spearman(torch.tensor(a), torch.tensor(b), counts)
    np.testing.assert_allclose(found, [stats.spearmanr(a[c], b[c]).statistic for c in chosen], atol=1e-12)


# --- protocols --------------------------------------------------------------------------------------------------


def test_the_three_protocols_are_what_they_say(sets):
    measured = measure_sts(sets, build_cosine_scorer(letters))
    assert tuple(measured.data) == STS_SETS
    for name, files in sets.items():
        predicted = measured.predicted[name]
        for part, pairs in files.items():
            u, v = letters(pairs.first).double().numpy(), letters(pairs.second).double().numpy()
            cosine = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
            np.testing.assert_allclose(predicted[part], cosine, atol=1e-12)
        each = [stats.spearmanr(predicted[part], pairs.score).statistic for part, pairs in files.items()]
        gold = np.concatenate([pairs.score for pairs in files.values()])
        assert measured.compute_correlation(name, "all") == pytest.approx(
            stats.spearmanr(torch.cat(list(predicted.values())), gold).statistic
        )
        assert measured.compute_correlation(name, "mean") == pytest.approx(np.mean(each))
        assert measured.compute_correlation(name, "wmean") == pytest.approx(
            np.average(each, weights=[len(pairs) for pairs in files.values()])
        )
    assert measured.compute_average() == pytest.approx(np.mean([measured.compute_correlation(n) for n in STS_SETS]))


def test_protocols_differ_where_files_have_different_levels():
    """Perfect within each file, but the second file's predictions are shifted against its grades."""
    score = np.array([0.0, 1.0, 2.0])
    files = {"a": GradedPairs(["x"] * 3, ["y"] * 3, score), "b": GradedPairs(["x"] * 6, ["y"] * 6, np.repeat(score, 2) + 0.5)}
    measured = measure_sts({"S": files}, lambda first, second: torch.tensor([10, 11, 12, *(5.0, 4.0, 3.0, 2.0, 1.0, 0.0)]))
    mirrored = stats.spearmanr([5, 4, 3, 2, 1, 0], np.repeat(score, 2)).statistic
    assert measured.compute_correlation("S", "mean") == pytest.approx((1 + mirrored) / 2)
    assert measured.compute_correlation("S", "wmean") == pytest.approx((3 + 6 * mirrored) / 9)
    assert measured.compute_correlation("S", "all") == pytest.approx(
        stats.spearmanr([10, 11, 12, 5, 4, 3, 2, 1, 0], np.concatenate([score, np.repeat(score, 2) + 0.5])).statistic
    )


def test_each_text_is_encoded_once_and_all_in_one_call(sets):
    calls = []

    def encode(texts):
        calls.append(texts)
        return letters(texts)

    measure_sts(sets, build_cosine_scorer(encode))
    (texts,) = calls
    assert len(texts) == len(set(texts))
    assert set(texts) == {t for files in sets.values() for pairs in files.values() for t in pairs.first + pairs.second}


def test_a_broken_or_collapsed_encoder(sets):
    with pytest.raises(NearfarError, match="NaN"):
        measure_sts(sets, build_cosine_scorer(lambda texts: letters(texts) / 0))
    with pytest.raises(NearfarError, match="1 vectors for"):
        measure_sts(sets, build_cosine_scorer(lambda texts: letters(texts[:1])))
    with pytest.raises(NearfarError, match="finite numbers"):
        measure_sts(sets, lambda first, second: torch.zeros(3))
    assert measure_sts(sets, build_cosine_scorer(lambda texts: torch.zeros(len(texts), 4))).compute_average() == 0


def test_the_table_and_the_json_hold_every_set(sets):
    measured = measure_sts(sets, build_cosine_scorer(letters))
    lines = render_sts({"letters": measured, "tf-idf": measure_sts(sets, tf_idf_cosine)}).splitlines()
    assert lines[0].split() == [*STS_SETS, "average"]
    assert lines[1].split()[1:] == [f"{100 * v:.2f}" for v in (*map(measured.compute_correlation, STS_SETS), measured.compute_average())]
    assert "'all'" in lines[-1]
    as_dict = measured.as_dict()
    assert as_dict["sets"]["STS12"]["pairs"] == 35
    assert set(as_dict["sets"]["STS12"]["parts"]) == set(sets["STS12"])
    assert set(as_dict["average"]) == {"all", "mean", "wmean"}


# --- bootstrap --------------------------------------------------------------------------------------------------


def graded(n: int, seed: int) -> tuple[dict, torch.Tensor]:
    gold = np.random.default_rng(seed).uniform(0, 5, n)
    return {"S": {"test": GradedPairs(["a"] * n, ["b"] * n, gold)}}, torch.tensor(gold)


def test_the_bootstrap_sees_a_difference_and_none():
    data, gold = graded(300, 0)
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 300)))
    good, bad = (measure_sts(data, lambda a, b, s=s, e=e: gold + s * e) for s, e in ((0.5, noise[0]), (3.0, noise[1])))
    found = compare_sts(good, bad, RandomKey(0), draws=200)
    assert found["S"].interval_low > 0.2
    assert found["S"].interval_low < found["S"].difference < found["S"].interval_high
    assert found["average"] == found["S"]
    same = compare_sts(good, good, RandomKey(0), draws=50)["S"]
    assert (same.difference, same.standard_error, same.interval_low, same.interval_high) == (0, 0, 0, 0)


def test_the_bootstraps_error_is_about_the_deviation_over_fresh_pairs():
    rng = np.random.default_rng(2)
    differences, errors = [], []
    for trial in range(30):
        data, gold = graded(200, trial)
        noise = torch.from_numpy(rng.normal(size=(2, 200)))
        a, b = (measure_sts(data, lambda x, y, s=gold + 2 * e: s) for e in noise)
        found = compare_sts(a, b, RandomKey(trial), draws=100)["S"]
        differences.append(found.difference)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.35)


def test_the_bootstrap_is_keyed_and_refuses_what_cannot_be_compared(sets):
    a, b = measure_sts(sets, build_cosine_scorer(letters)), measure_sts(sets, ngram_jaccard)
    assert compare_sts(a, b, RandomKey(0), 70) == compare_sts(a, b, RandomKey(0), 70)
    assert compare_sts(a, b, RandomKey(0), 70) != compare_sts(a, b, RandomKey(1), 70)
    one, other = graded(10, 0), graded(10, 1)
    x, y = (measure_sts(data, lambda a, b, g=gold: g) for data, gold in (one, other))
    with pytest.raises(NearfarError, match="different pairs"):
        compare_sts(x, y, RandomKey(0), 10)
    with pytest.raises(NearfarError, match="different sets"):
        compare_sts(a, x, RandomKey(0), 10)
    with pytest.raises(NearfarError, match="at least 2 draws"):
        compare_sts(a, b, RandomKey(0), 1)


# --- floors -----------------------------------------------------------------------------------------------------


def test_floors_know_equal_from_unrelated():
    first, second = ["the cat sat", "the cat sat", "a red bird"], ["The cat sat", "a cat slept", "two blue fish"]
    for score in (tf_idf_cosine, ngram_jaccard, build_cosine_scorer(build_random_word_encoder(RandomKey(0), 4096))):
        equal, near, far = score(first, second).tolist()
        assert equal == pytest.approx(1)
        assert 0.05 < near < 0.95
        assert abs(far) < 0.08


def test_trigrams_against_a_hand_count():
    """' ab ' and ' abc ': ' ab', 'ab ' and ' ab', 'abc', 'bc ' share one of four. Texts without letters do not fail."""
    assert ngram_jaccard(["ab", "", "!"], ["ABC", "", "?"]).tolist() == [0.25, 1, 0]


def test_random_words_are_means_of_keyed_vectors():
    encode = build_random_word_encoder(RandomKey(0), 16)
    x = encode(["red bird", "bird", "red", "..."])
    assert torch.allclose(x[0], (x[1] + x[2]) / 2)
    assert x[3].eq(0).all()
    assert torch.equal(x, build_random_word_encoder(RandomKey(0), 16)(["red bird", "bird", "red", "..."]))
    assert not torch.equal(x, build_random_word_encoder(RandomKey(1), 16)(["red bird", "bird", "red", "..."]))


def test_tf_idf_on_the_real_sts_benchmark(data_folder):
    folder = data_folder / "senteval"
    if not folder.is_dir():
        pytest.skip(f"no {folder} (set NEARFAR_DATA)")
    real = {"STS-B": read_sts(folder, "STS-B")}
    assert 0.66 < measure_sts(real, tf_idf_cosine).compute_average() < 0.74
    assert 0.60 < measure_sts(real, ngram_jaccard).compute_average() < 0.75
