"""Triplet losses against triple loops and an independent library; their edges; blocks and ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.batch_triplet import batch_all, batch_hard, batch_hard_soft_margin, semi_hard_triplet, sum_triplet_hinges
from nearfar.losses.candidate_selection import select_negatives
from nearfar.losses.hinge import ranking_hinge
from nearfar.losses.lifted_structure import lifted_structure, lifted_structure_smooth
from nearfar.losses.mining import mine_hardest_negatives
from nearfar.losses.triplet import triplet, triplet_ratio
from nearfar.scores import Scores, bilinear, cosine, euclidean, squared_euclidean

SCORES = {"squared_euclidean": squared_euclidean, "euclidean": euclidean, "cosine": cosine}
LOSSES = {
    "batch_all": lambda S: batch_all(S, 0.7),
    "batch_all over all": lambda S: batch_all(S, 0.7, average_over="all"),
    "batch_hard": lambda S: batch_hard(S, 0.7),
    "batch_hard_soft": batch_hard_soft_margin,
    "semi_hard": lambda S: semi_hard_triplet(S, 0.7),
}
DISTANCES = {
    "squared_euclidean": lambda a, b: (a - b).square().sum(),
    "euclidean": lambda a, b: (a - b).norm(),
    "cosine": lambda a, b: 1 - F.cosine_similarity(a, b, dim=0),
}


def _randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _batch(n: int = 12, d: int = 4) -> tuple[Tensor, Tensor]:
    """Classes of unequal size, one of a single row, one row of unknown label."""
    y = torch.tensor([0, 1, 2, 0, 1, 0, 2, 0, 1, 3, -1, 0])[:n]
    return _randn(n, d), y


def _triplets(y: Tensor) -> list[tuple[int, int, int]]:
    labels, rows = y.tolist(), range(len(y))
    alike = lambda i, j: labels[i] == labels[j] != -1
    return [(a, p, n) for a in rows for p in rows for n in rows if a != p and alike(a, p) and n != a and not alike(a, n)]


def _oracle(name: str, z: Tensor, y: Tensor, score: str) -> Tensor:
    """Each loss from its definition, by loops over the rows."""
    margin, D = 0.7, lambda i, j: DISTANCES[score](z[i], z[j])
    triplets = _triplets(y)
    if name.startswith("batch_all"):
        terms = torch.stack([F.relu(margin + D(a, p) - D(a, n)) for a, p, n in triplets])
        return terms.sum() / (len(terms) if name.endswith("over all") else (terms > 0).sum())
    if name == "semi_hard":
        terms = []
        for a, p in sorted({(a, p) for a, p, _ in triplets}):
            found = [D(a, n) for b, q, n in triplets if (b, q) == (a, p) and D(a, p) < D(a, n) < D(a, p) + margin]
            terms += [margin + D(a, p) - min(found)] if found else []
        return torch.stack(terms).mean()
    rows = []
    for a in range(len(y)):
        own = [(p, n) for b, p, n in triplets if b == a]
        gap = max(D(a, p) for p, _ in own) - min(D(a, n) for _, n in own) if own else torch.tensor(-math.inf, dtype=z.dtype)
        rows.append(F.relu(gap + margin) if name == "batch_hard" else F.softplus(gap))
    return torch.stack(rows)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_equal_loops_over_triplets(name, score):
    z, y = _batch()
    z.requires_grad_()
    found, expected = LOSSES[name](Scores.from_labels(z, y, score=SCORES[score])), _oracle(name, z, y, score)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert expected.sum() > 0
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), z)[0] for x in (found, expected)), rtol=1e-8, atol=1e-10)


@st.composite
def ties(draw):
    """Few different scores, so that many hinges are exactly zero."""
    n, p, k = draw(st.integers(1, 4)), draw(st.integers(0, 5)), draw(st.integers(0, 6))
    table = lambda w: torch.tensor(draw(st.lists(st.integers(-3, 3), min_size=n * w, max_size=n * w)), dtype=torch.float64).view(n, w)
    return table(p), table(k), draw(st.sampled_from([0, 1, 2]))


@given(ties())
def test_all_triplets_are_exact_where_scores_tie(case):
    pos, neg, margin = (x.requires_grad_() if isinstance(x, Tensor) else x for x in case)
    terms = F.relu(margin + neg[:, None, :] - pos[:, :, None])
    total, active, every = sum_triplet_hinges(Scores.from_lists(pos, neg), margin)
    torch.testing.assert_close(total, terms.sum((1, 2)))
    assert active.tolist() == (terms > 0).sum((1, 2)).tolist()
    assert every.tolist() == [pos.shape[1] * neg.shape[1]] * len(pos)
    found, expected = (torch.autograd.grad(x.square().sum(), (pos, neg)) for x in (total, terms.sum((1, 2))))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ranking_hinge(Scores.from_lists(pos, neg), margin), terms.sum((1, 2)) / max(1, pos.shape[1] * neg.shape[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_triplets_lose_no_digits_far_from_the_origin(dtype):
    """Squared distances of about 200 against a margin of 0.2: the sums of counts times scores must not cancel."""
    z, y = (_randn(60, 100)).to(dtype), torch.arange(60) % 6
    found = batch_all(Scores.from_labels(z + 3, y, score=squared_euclidean), 0.2)
    exact = batch_all(Scores.from_labels((z + 3).double(), y, score=squared_euclidean), 0.2)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("power", [1, 2])
def test_agreement_with_pytorch_metric_learning(power):
    from pytorch_metric_learning import distances, miners
    from pytorch_metric_learning import losses as library

    z, y = _randn(20, 5).requires_grad_(), torch.arange(20) % 4
    S = Scores.from_labels(z, y, score=squared_euclidean if power == 2 else euclidean)
    distance = distances.LpDistance(power=power, normalize_embeddings=False)
    theirs = library.TripletMarginLoss(margin=0.3, distance=distance)
    hardest = miners.BatchHardMiner(distance=distance)
    cases = [(batch_all(S, 0.3), theirs(z, y)), (_mean_of_active(batch_hard(S, 0.3)), theirs(z, y, hardest(z, y)))]
    for ours, other in cases:
        torch.testing.assert_close(ours, other)
        torch.testing.assert_close(*(torch.autograd.grad(x, z)[0] for x in (ours, other)), rtol=1e-6, atol=1e-9)
    semi = miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard", distance=distance)(z, y)
    D, nearest = distance(z).detach(), {}
    for a, p, n in zip(*(t.tolist() for t in semi), strict=True):
        nearest[a, p] = min(nearest.get((a, p), math.inf), float(D[a, n]))
    terms = [0.3 + float(D[a, p]) - far for (a, p), far in nearest.items()]
    assert float(semi_hard_triplet(S, 0.3).detach()) == pytest.approx(sum(terms) / len(terms))


def _mean_of_active(values: Tensor) -> Tensor:
    return values.sum() / (values > 0).sum()


@pytest.mark.parametrize("score", SCORES)
def test_given_triplets(score):
    a, p, n = (_randn(7, 4, seed=s).requires_grad_() for s in range(3))
    expected = torch.stack([F.relu(DISTANCES[score](a[i], p[i]) - DISTANCES[score](a[i], n[i]) + 0.5) for i in range(7)])
    found = triplet(a, p, n, 0.5, SCORES[score])
    torch.testing.assert_close(found, expected)
    assert 0 < (found > 0).sum() < 7
    if score == "euclidean":
        torch.testing.assert_close(found, F.triplet_margin_loss(a, p, n, 0.5, eps=0, reduction="none"))
    one_by_one = [
        batch_all(Scores.from_matched(a[i : i + 1], p[i : i + 1], negatives=n[i : i + 1], score=SCORES[score]), 0.5) for i in range(7)
    ]
    torch.testing.assert_close(found, torch.stack(one_by_one))
    assert torch.autograd.gradcheck(lambda a, p, n: triplet(a, p, n, 0.5, SCORES[score]), (a, p, n), fast_mode=True)


def test_squared_and_unsquared_are_two_losses():
    """The same name is printed with squares and without: the values differ, and so do the gradients' directions."""
    a, p, n = (_randn(6, 3, seed=s).requires_grad_() for s in range(3))
    squared, plain = triplet(a, p, n, 5.0, squared_euclidean), triplet(a, p, n, 5.0, euclidean)
    assert ((squared - plain).abs() > 1e-3).all()
    assert F.cosine_similarity(*(torch.autograd.grad(x.sum(), a)[0] for x in (squared, plain)), dim=1).min() < 0.99


def test_oasis_is_the_triplet_hinge_of_a_bilinear_score():
    q, p, n = (_randn(5, 3, seed=s) for s in range(3))
    W = _randn(3, 3, seed=4).requires_grad_()
    expected = torch.stack([F.relu(1 - q[i] @ W @ p[i] + q[i] @ W @ n[i]) for i in range(5)])
    found = triplet(q, p, n, margin=1, score=bilinear(W))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), W)[0] for x in (found, expected)))


def test_triplet_ratio_is_a_squared_softmax():
    a, p, n = (_randn(6, 3, seed=s).requires_grad_() for s in range(3))
    shares = torch.stack([(a - p).norm(dim=1), (a - n).norm(dim=1)], 1).softmax(1)
    torch.testing.assert_close(triplet_ratio(a, p, n), F.mse_loss(shares, torch.tensor([[0.0, 1]] * 6).double(), reduction="none").mean(1))
    assert torch.autograd.gradcheck(triplet_ratio, (a, p, n))


@pytest.mark.parametrize("name", LOSSES)
def test_gradcheck(name):
    z, y = _batch(9)
    tables = lambda z: [Scores.from_labels(z, y, score=s) for s in SCORES.values()] + [Scores.from_views(z[:3], z[3:6], z[6:])]
    assert torch.autograd.gradcheck(
        lambda z: tuple(LOSSES[name](replace(S, rows_per_block=4)).sum() for S in tables(z)), z.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("name", LOSSES)
def test_neither_the_order_of_rows_nor_the_block_size_matters(name):
    z, y = _batch()
    order = torch.tensor([3, 8, 11, 0, 6, 7, 2, 10, 4, 9, 1, 5])
    found = []
    for block in (None, 1, 5, 12, 50):
        x = z.clone().requires_grad_()
        values = LOSSES[name](replace(Scores.from_labels(x, y, score=euclidean), rows_per_block=block)).sum()
        found.append((values.detach(), *torch.autograd.grad(values, x)))
        torch.testing.assert_close(found[-1], found[0])
    x = z[order].requires_grad_()
    values = LOSSES[name](Scores.from_labels(x, y[order], score=euclidean)).sum()
    torch.testing.assert_close((values.detach(), *torch.autograd.grad(values, x)), (found[0][0], found[0][1][order]))


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_raises_positives_and_lowers_negatives(name):
    pos, neg = _randn(20, 3).requires_grad_(), _randn(20, 5, seed=1).requires_grad_()
    LOSSES[name](Scores.from_lists(pos, neg)).sum().backward()
    assert pos.grad is not None
    assert neg.grad is not None
    assert (pos.grad <= 0).all()
    assert (neg.grad >= 0).all()
    assert pos.grad.any()
    torch.testing.assert_close(pos.grad.sum(), -neg.grad.sum())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_no_nan_for_zero_rows_duplicates_lonely_rows_and_collapse(name, score, dtype):
    base = _randn(6, 4).to(dtype)
    base[1], base[3], base[5] = 0, base[2], -base[4]
    several = torch.tensor([0, 0, 1, 1, -1, 2])
    cases = [(base, several), (base, torch.zeros(6).long()), (base, torch.arange(6)), (base[:1], several[:1])]
    cases += [(torch.zeros_like(base), several), (base[:1].repeat(6, 1), several)]
    for vectors, y in cases:
        z = vectors.clone().requires_grad_()
        values = LOSSES[name](Scores.from_labels(z, y, score=SCORES[score]))
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        values.sum().backward()
        assert z.grad is not None
        assert values.isfinite().all()
        assert z.grad.isfinite().all()
        if not _triplets(y):
            assert not values.any()
            assert not z.grad.any()


def test_collapse_costs_the_margin_and_no_more():
    z, y = torch.ones(6, 3), torch.arange(6) % 2
    for loss in (lambda S: batch_all(S, 0.3), lambda S: batch_hard(S, 0.3).mean()):
        assert float(loss(Scores.from_labels(z, y, score=squared_euclidean))) == pytest.approx(0.3)
    assert float(semi_hard_triplet(Scores.from_labels(z, y, score=squared_euclidean), 0.3)) == 0, "no negative lies beyond a positive"


def test_batch_hard_is_the_worst_of_all_triplets():
    z, y = _batch()
    S = Scores.from_labels(z, y, score=euclidean)
    assert (batch_hard(S, 0.7) >= ranking_hinge(S, 0.7)).all()
    torch.testing.assert_close(batch_hard_soft_margin(S * 1000) / 1000, batch_hard(S, 0), atol=1e-3, rtol=0)


def _answers() -> list[Tensor]:
    z, y = _batch()
    answers = []
    tables = [
        lambda x: replace(Scores.from_labels(x, y, score=euclidean), rows_per_block=3),
        lambda x: Scores.from_labels(x, y, score=squared_euclidean),
    ]
    mined = lambda S: batch_hard(select_negatives(S, mine_hardest_negatives(S, 2)), 0.7)
    for loss in [*LOSSES.values(), lifted_structure, lifted_structure_smooth, mined]:
        for table in tables:
            x = z.clone().requires_grad_()
            value = loss(table(x)).sum()
            answers += [value.detach(), *torch.autograd.grad(value, x)]
    return answers


def _one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(_answers(), f"{folder}/answers{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_equal_one(tmp_path: Path):
    mp.spawn(_one_of_two, args=(str(tmp_path),), nprocs=2)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"answers{rank}", weights_only=True), _answers(), rtol=1e-10, atol=1e-12)
