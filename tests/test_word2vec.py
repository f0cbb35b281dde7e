"""word2vec: windows against naive loops, the hand-written loss against negative_sampling, row-wise Adagrad against torch's."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import nearfar
from nearfar.api.evaluate import measure_model
from nearfar.core import Net, RandomKey, Rows, RuntimeConfig, TrainConfig, UsageError
from nearfar.data.words.dataset import build_corpus
from nearfar.losses import negative_sampling
from nearfar.losses import word2vec as window_losses
from nearfar.losses.word2vec import build_sparse_gradient, build_window_mask, cbow_neg, get_tile_centers, skip_gram_neg, sum_listed_rows
from nearfar.modalities.embedding_tables import get_row_numbers
from nearfar.recipes import load_method
from nearfar.similarity.text_windows import (
    CENTERS_PER_GROUP,
    WordBags,
    WordWindows,
    compute_keep_probabilities,
    compute_noise_cdf,
    draw_from_cdf,
)
from nearfar.train.optimizers import make_optimizer
from nearfar.train.row_adagrad import RowAdagrad, densify, get_touched_rows
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train


def text(sentences: int = 40, words: int = 12, seed: int = 0):
    """A corpus in which word i is drawn with weight 1/(i + 1)."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, words + 1)
    lengths = rng.integers(1, 30, sentences)
    return build_corpus([[f"w{i}" for i in rng.choice(words, n, p=weights / weights.sum())] for n in lengths], min_count=1)


def some_rows(n: int, first: int = 0) -> Rows:
    return Rows(np.arange(n), first + np.arange(n), np.arange(n))


def naive_windows(corpus, windows: WordWindows, rows: Rows, rng_key: RandomKey):
    """For each row its kept centers: (word, words of its window)."""
    keep = rng_key("keep").uniform(rows.slots, windows.words_per_row)
    reach = 1 + rng_key("reach").integers(rows.slots, windows.window, windows.words_per_row)
    shares = compute_keep_probabilities(corpus, windows.subsample_threshold)
    sentence_of = np.repeat(np.arange(len(corpus.offsets) - 1), np.diff(corpus.offsets))
    for r, block in enumerate(rows.ids):
        places = range(block * windows.words_per_row, min((block + 1) * windows.words_per_row, len(corpus.tokens)))
        kept = [(p, k) for k, p in enumerate(places) if keep[r, k] < shares[corpus.tokens[p]]]
        found = []
        for i, (p, k) in enumerate(kept):
            near = [q for j, (q, _) in enumerate(kept) if j != i and abs(i - j) <= reach[r, k] and sentence_of[q] == sentence_of[p]]
            found.append((int(corpus.tokens[p]), [int(corpus.tokens[q]) for q in near]))
        yield found


@pytest.mark.parametrize(("block", "window", "subsample"), [(64, 5, 0.0), (50, 3, 0.05), (7, 2, 0.02), (300, 5, 0.1)])
def test_windows_are_those_of_a_naive_loop(block, window, subsample):
    corpus, windows = text(), WordWindows(block, window, subsample, shared_negatives=4)
    rows, rng_key = some_rows(windows.count(corpus)), RandomKey(3)
    raw = windows.read(corpus, rows, rng_key)
    near, centre = build_window_mask(raw["sentence"], raw["reach"]), get_tile_centers(raw["word"], raw["reach"])
    for r, expected in enumerate(naive_windows(corpus, windows, rows, rng_key)):
        mine = (raw["row"] == r).nonzero()[:, 0].tolist()
        got = [(int(centre[m, i]), raw["word"][m][near[m, i]].tolist()) for m in mine for i in range(CENTERS_PER_GROUP)]
        assert got[: len(expected)] == expected
        assert not any(words for _, words in got[len(expected) :]), "places that are not there have no window"


def cut(lists):
    """A list of lists again."""
    members, begins = (x.tolist() for x in lists)
    return [members[a:b] for a, b in itertools.pairwise(begins)]


@pytest.mark.parametrize(("block", "window", "subsample", "tile"), [(64, 5, 0.0, 32), (50, 3, 0.05, 8), (7, 2, 0.02, 4), (3, 9, 0.1, 16)])
def test_bags_are_the_windows_of_a_naive_loop(block, window, subsample, tile):
    corpus, bags = text(), WordBags(block, window, subsample, shared_negatives=4, centers_per_group=tile)
    rows, rng_key = some_rows(bags.count(corpus)), RandomKey(3)
    raw = bags.read(corpus, rows, rng_key)
    assert torch.equal(
        raw["noise"], WordWindows(block, window, subsample, shared_negatives=4, centers_per_group=tile).read(corpus, rows, rng_key)["noise"]
    )
    near, of_row = cut(raw["near"]), raw["row"].repeat_interleave(tile)
    word = raw["word"].view(-1)
    for r, expected in enumerate(naive_windows(corpus, bags, rows, rng_key)):
        mine = (of_row == r).nonzero()[:, 0].tolist()
        assert [(int(word[i]), near[i]) for i in mine[: len(expected)]] == expected
        assert not any(near[i] for i in mine[len(expected) :]), "places that are not there have no window"


def test_bags_turned_round_say_the_same():
    corpus, bags = text(), WordBags(50, 4, 0.1, shared_negatives=5, centers_per_group=8)
    raw = bags.read(corpus, some_rows(6), RandomKey(4))
    pairs = [(w, i) for i, window in enumerate(cut(raw["near"])) for w in window]
    seen, *by_word = raw["seen"]
    assert sorted((w, i) for w, found in zip(seen.tolist(), cut(by_word), strict=True) for i in found) == sorted(pairs)
    named, *places = raw["named"]
    either = torch.cat([raw["word"].view(-1), raw["noise"].view(-1)]).tolist()
    assert sorted((i, w) for w, found in zip(named.tolist(), cut(places), strict=True) for i in found) == list(enumerate(either))
    for words in (seen, named):
        assert (words.diff() > 0).all(), "each once, in ascending order"


def test_a_text_of_which_nothing_is_left_has_no_bags():
    corpus = build_corpus([["a"] * 500, ["b"] * 500], min_count=1)
    raw = WordBags(words_per_row=2, subsample_threshold=1e-9, centers_per_group=4, shared_negatives=3).read(
        corpus, some_rows(3), RandomKey(0)
    )
    v = torch.ones(2, 3, requires_grad=True)
    loss, count = cbow_neg(v, v.detach(), raw["word"], raw["noise"], raw["near"], raw["seen"], raw["named"], 5)
    loss.sum().backward()
    assert (len(loss), len(count), v.grad.to_dense().abs().sum().item()) == (0, 0, 0.0)


def test_every_place_is_in_one_block():
    corpus, windows = text(), WordWindows(words_per_row=64, subsample_threshold=0.0)
    raw = windows.read(corpus, some_rows(windows.count(corpus)), RandomKey(0))
    assert get_tile_centers(raw["word"], raw["reach"])[raw["reach"] > 0].tolist() == corpus.tokens.tolist()


def test_rows_do_not_depend_on_their_neighbours():
    corpus, windows = text(200), WordWindows(words_per_row=40, subsample_threshold=0.05)
    rows = some_rows(10, first=100)
    whole = windows.read(corpus, rows, RandomKey(1))
    for i in range(10):
        alone = windows.read(corpus, rows[i : i + 1], RandomKey(1))
        for name in ("word", "sentence", "reach", "noise"):
            assert torch.equal(alone[name], whole[name][whole["row"] == i]), name
    assert not torch.equal(whole["noise"], windows.read(corpus, some_rows(10), RandomKey(1))["noise"]), "other slots, other numbers"


def test_frequent_words_are_thinned_out_as_the_formula_says():
    corpus, t = text(3000), 0.05
    windows = WordWindows(words_per_row=64, subsample_threshold=t)
    rows = some_rows(windows.count(corpus))
    raw = windows.read(corpus, rows, RandomKey(5))
    kept = np.bincount(get_tile_centers(raw["word"], raw["reach"])[raw["reach"] > 0], minlength=len(corpus))
    for count, left in zip(corpus.counts, kept, strict=True):
        share = count / corpus.counts.sum()
        p = min(1.0, math.sqrt(t / share) + t / share)
        assert left == pytest.approx(count * p, abs=5 * math.sqrt(count * p * (1 - p)) + 1e-3 * count)


def test_noise_follows_counts_to_three_quarters():
    corpus = text(3000)
    expected = corpus.counts**0.75 / (corpus.counts**0.75).sum()
    drawn = WordWindows(shared_negatives=64).read(corpus, Rows(np.zeros(400, int), np.arange(400), np.zeros(400, int)), RandomKey(2))[
        "noise"
    ]
    n = drawn.numel()
    found = np.bincount(drawn.reshape(-1), minlength=len(corpus))
    assert (np.abs(found - n * expected) < 5 * np.sqrt(n * expected)).all()
    assert compute_noise_cdf(corpus, 0.0) == pytest.approx(np.arange(1, 13) / 12)
    assert draw_from_cdf(np.array([0.25, 1.0]), np.array([0.0, 0.2499, 0.25, 0.999])).tolist() == [0, 0, 1, 1]


def drawn(kind: type[WordWindows], seed: int = 0, dim: int = 6):
    corpus, windows = text(seed=seed), kind(words_per_row=50, window=3, subsample_threshold=0.2, shared_negatives=7)
    rows, rng_key = some_rows(4), RandomKey(seed)
    g = torch.Generator().manual_seed(seed)
    v, u = (torch.randn(len(corpus), dim, generator=g, dtype=torch.float64).requires_grad_() for _ in range(2))
    return v, u, windows.read(corpus, rows, rng_key), list(naive_windows(corpus, windows, rows, rng_key))


def naive_skip_gram(v, u, noise, found, k):
    pairs = [(c, o) for c, near in found for o in near]
    c, o = (torch.tensor(side, dtype=torch.long) for side in zip(*pairs, strict=True))
    every = negative_sampling(v[c], u[o], u[noise].expand(len(pairs), -1, -1))
    positive = F.softplus(-(v[c] * u[o]).sum(1))
    return (positive + (every - positive) * k / len(noise)).sum(), len(pairs)


def naive_cbow(v, u, noise, found, k):
    full = [(c, near) for c, near in found if near]
    h = torch.stack([v[near].mean(0) for _, near in full])
    o = u[[c for c, _ in full]]
    every, positive = negative_sampling(h, o, u[noise].expand(len(full), -1, -1)), F.softplus(-(h * o).sum(1))
    return (positive + (every - positive) * k / len(noise)).sum(), len(full)


def fast_skip_gram(v, u, raw, k):
    return skip_gram_neg(v, u, raw["word"], raw["sentence"], raw["reach"], raw["noise"], k)


def fast_cbow(v, u, raw, k):
    return cbow_neg(v, u, raw["word"], raw["noise"], raw["near"], raw["seen"], raw["named"], k)


BOTH = [(WordWindows, fast_skip_gram), (WordBags, fast_cbow)]


@pytest.mark.parametrize(("kind", "fast", "naive"), [(WordWindows, fast_skip_gram, naive_skip_gram), (WordBags, fast_cbow, naive_cbow)])
@pytest.mark.parametrize(("seed", "slab"), [(0, 4096), (1, 4096), (0, 1), (1, 2 * CENTERS_PER_GROUP)])
def test_the_closed_form_is_negative_sampling_pair_by_pair(kind, fast, naive, seed, slab, monkeypatch):
    monkeypatch.setattr(window_losses, "CENTERS_PER_BLOCK", slab)
    v, u, raw, blocks = drawn(kind, seed)
    loss, count = fast(v, u, raw, 5)
    tiles = [found[i : i + CENTERS_PER_GROUP] for found in blocks for i in range(0, len(found), CENTERS_PER_GROUP)]
    expected = [naive(v, u, noise, found, 5) for noise, found in zip(raw["noise"], tiles, strict=True)]
    assert count.tolist() == [n for _, n in expected]
    slow = torch.stack([value for value, _ in expected])
    assert torch.allclose(loss, slow, rtol=1e-12)
    weights = torch.linspace(-2, 3, len(loss), dtype=torch.float64)  # each tile has a gradient of its own
    fast_grads = torch.autograd.grad((loss * weights).sum(), (v, u))
    for mine, theirs in zip(fast_grads, torch.autograd.grad((slow * weights).sum(), (v, u)), strict=True):
        assert mine.is_sparse
        assert torch.allclose(mine.to_dense(), theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "fast"), BOTH)
def test_a_word_alone_costs_nothing(kind, fast):
    corpus = build_corpus([["a"], ["b"]] * 8, min_count=1)
    raw = kind(words_per_row=16, subsample_threshold=0.0, shared_negatives=3).read(corpus, some_rows(1), RandomKey(0))
    v, u = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    loss, count = fast(v, u, raw, 5)
    loss.sum().backward()
    assert (loss.item(), count.item()) == (0.0, 0.0)
    assert not any(table.grad.to_dense().any() for table in (v, u))


@pytest.mark.parametrize(("kind", "fast"), BOTH)
def test_large_scores_stay_finite(kind, fast):
    _, _, raw, _ = drawn(kind)
    v, u = (torch.full((12, 4), s * 100.0, requires_grad=True) for s in (1, -1))
    loss, _ = fast(v, u, raw, 5)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(v.grad.to_dense()).all()


def test_sums_of_lists_are_those_of_a_loop():
    g = torch.Generator().manual_seed(0)
    table, weights = torch.randn(6, 3, generator=g, dtype=torch.float64), torch.randn(5, generator=g, dtype=torch.float64)
    members, begins = torch.tensor([3, 3, 0, 5, 1]), torch.tensor([0, 2, 2, 5])
    expected = torch.stack([sum(weights[i] * table[members[i]] for i in span) for span in ([0, 1], [2, 3, 4])])
    found = sum_listed_rows(table, (members, begins), weights)
    assert torch.allclose(found[[0, 2]], expected)
    assert not found[1].any(), "an empty list has the sum zero"
    assert torch.allclose(sum_listed_rows(table, (members, begins))[0], 2 * table[3])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_touched_rows_are_the_coalesced_gradient(ids):
    values = torch.arange(2.0 * len(ids)).view(-1, 2)
    grad = build_sparse_gradient(torch.tensor(ids), values, torch.Size((5, 2)))
    rows, found = get_touched_rows(grad)
    assert rows.tolist() == sorted(set(ids))
    assert torch.equal(found, grad.to_dense()[rows])


def test_of_width_one_row_adagrad_is_adagrad():
    mine, theirs = (torch.linspace(-1, 1, 6)[:, None].clone().requires_grad_() for _ in range(2))
    a, b = RowAdagrad([mine], lr=0.3), torch.optim.Adagrad([theirs], lr=0.3)
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        ids = torch.randint(0, 5, (1, 8), generator=g)  # row 5 is never touched
        grad = build_sparse_gradient(ids, torch.randn(8, 1, generator=g), torch.Size((6, 1)))
        mine.grad, theirs.grad = grad, grad.to_dense()
        a.step()
        b.step()
    assert torch.allclose(mine, theirs, atol=1e-6)
    assert mine[5] == 1.0


def test_sparse_and_dense_gradients_move_a_table_alike():
    grads = [build_sparse_gradient(torch.tensor([0, 2, 0]), torch.randn(3, 4), torch.Size((3, 4))) for _ in range(3)]
    tables = [torch.ones(3, 4, requires_grad=True) for _ in range(2)]
    for table, dense in zip(tables, (False, True), strict=True):
        optimizer = RowAdagrad([table], lr=0.1)
        for grad in grads:
            table.grad = grad.to_dense() if dense else grad
            optimizer.step()
    assert torch.allclose(*tables)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lars"])
def test_other_optimizers_see_dense_gradients(optimizer):
    nets = [Net(table=torch.nn.Parameter(torch.ones(4, 3))) for _ in range(2)]
    grad = build_sparse_gradient(torch.tensor([0, 2, 0]), torch.ones(3, 3), torch.Size((4, 3)))
    for net, given_grad in zip(nets, (grad, grad.to_dense()), strict=True):
        net.table.grad = given_grad
        make_optimizer(net, ("",), TrainConfig(optimizer=optimizer)).step()
    assert torch.equal(nets[0].table, nets[1].table)
    assert not torch.equal(nets[0].table, torch.ones(4, 3))
    densify([nets[1].table])
    assert not nets[1].table.grad.is_sparse


def test_clipping_and_adagrad_exclude_each_other():
    with pytest.raises(UsageError, match="--grad-clip"):
        make_optimizer(Net(table=torch.nn.Parameter(torch.ones(4, 3))), ("",), TrainConfig(optimizer="adagrad", grad_clip=1.0))


@pytest.mark.parametrize("name", ["word2vec-skipgram-neg", "word2vec-cbow"])
def test_words_of_one_topic_come_near_each_other(name):
    rng = np.random.default_rng(0)
    corpus = build_corpus([[f"{'ab'[topic]}{i}" for i in rng.integers(0, 10, 20)] for topic in rng.integers(0, 2, 300)], min_count=1)
    recipe, config = load_method(name).tiny
    session = TrainingSession(recipe, dataclasses.replace(config, steps=100, batch_size=32), RuntimeConfig(), corpus, torch.device("cpu"))
    before = session.net.encoder.weight.detach().clone()
    train(session)
    topic = torch.tensor([word[0] == "a" for word in corpus.words])
    same = topic[:, None] == topic

    def margin(table):
        cosine = F.cosine_similarity(table[:, None], table[None], dim=2)
        return float(cosine[same].mean() - cosine[~same].mean())

    assert margin(session.net.encoder.weight.detach()) > 0.8
    assert margin(before) < 0.3


def test_eval_says_how_words_are_measured():
    trained = nearfar.fit("word2vec-cbow", preset="tiny", steps=2)
    table = measure_model(trained).table
    assert "compares with human judgments" in table.render()
    with pytest.raises(UsageError, match="no judgments"):
        measure_model(trained, "nowhere")


def test_files_of_judgements_are_columns_whatever_they_are_called(tmp_path):
    trained = nearfar.fit("word2vec-cbow", preset="tiny", steps=2)
    words = list(get_row_numbers(trained))[:8]
    pairs = [f"{a},{b},{i}" for i, (a, b) in enumerate(itertools.pairwise(words))]
    tabs = [line.replace(",", "\t") for line in reversed(pairs)]
    for name, lines in {"ws.csv": pairs, "ws.tsv": tabs, "representation.csv": pairs}.items():
        (tmp_path / name).write_text("\n".join(lines))
    table = measure_model(trained, tmp_path).table
    assert list(table.columns.values()) == ["representation", "ws.csv", "ws.tsv"]
    values = [table.results[-1][key] for key in table.columns]
    assert values == pytest.approx([values[0]] * 3)
    assert "trained table" in table.render()


@pytest.mark.parametrize("name", ["word2vec-skipgram-neg", "word2vec-cbow", "node2vec", "transe"])
def test_sparse_gradients_are_clipped(name):
    run = nearfar.fit(name, preset="tiny", steps=2, optimizer="adamw", grad_clip=1e-3, log_every=1)
    assert all(m["gradient"] > 0 for m in run.metrics if "gradient" in m)
    assert any("gradient" in m for m in run.metrics)
