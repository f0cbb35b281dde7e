"""Score tables against double loops: who is who, statistics, gradients, streaming, memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar.core import NearfarError, UsageError
from nearfar.scores import Scores, bilinear, build_learned_score, cosine, dot, log_add_exp, squared_euclidean
from nearfar.scores import fused as fused_module
from nearfar.scores import shortcuts as shortcuts_module
from nearfar.scores import table as table_module
from nearfar.scores.candidate_roles import as_ids

EVERY = (
    Scores.pos_count, Scores.pos_sum, Scores.pos_lse, Scores.pos_softplus, Scores.neg_count, Scores.neg_sum, Scores.neg_lse,
    Scores.neg_softplus, Scores.all_count, Scores.all_lse, Scores.neg_lse.with_power(2.5), Scores.pos_lse.with_power(0.5),
    Scores.neg_lse.with_power(0),
)  # fmt: skip


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _oracle(statistic, positive: list[float], negative: list[float]) -> float:
    """The statistic of one row, from its definition."""
    s = {"pos": positive, "neg": negative, "all": positive + negative}[statistic.candidate_set]
    if statistic.reduction == "count":
        return float(len(s))
    if statistic.reduction == "sum":
        return math.fsum(s)
    if statistic.reduction == "softplus":
        sign = -1 if statistic.candidate_set == "pos" else 1
        return math.fsum(math.log1p(math.exp(sign * x)) for x in s)
    total = math.fsum(math.exp(statistic.power * x) for x in s)
    return math.log(total) if total else -math.inf


def _expected(S: Scores, kinds: list[list[int]]) -> list[torch.Tensor]:
    """Every statistic by loops over `S.table()`; kinds[i][j] is +1, -1 or 0."""
    rows = S.to_dense().detach().tolist()
    sides = [
        ([x for x, k in zip(r, ks, strict=True) if k > 0], [x for x, k in zip(r, ks, strict=True) if k < 0])
        for r, ks in zip(rows, kinds, strict=True)
    ]
    return [torch.tensor([_oracle(what, *side) for side in sides], dtype=torch.float64) for what in EVERY]


def _assert_agree(S: Scores, kinds: list[list[int]]) -> None:
    expected = _expected(S, kinds)
    for version in (S, replace(S, rows_per_block=3), replace(S, id_period=None)):
        for what, a, b in zip(EVERY, version.stats(*EVERY), expected, strict=True):
            torch.testing.assert_close(a, b, msg=lambda m, what=what: f"{what}: {m}")
    assert (S.positive_mask.int() - S.negative_mask.int()).tolist() == kinds


def test_pairs_with_additional_negatives():
    a, b = _randn(4, 3), _randn(6, 3, seed=1)
    S = Scores.from_pairs(a, b) / 0.5
    kinds = [[1 if i == j else -1 for j in range(6)] for i in range(4)]
    _assert_agree(S, kinds)
    for i in range(4):
        for j in range(6):
            cos = float(a[i] @ b[j]) / math.sqrt(float(a[i] @ a[i]) * float(b[j] @ b[j]))
            assert float(S.to_dense()[i, j]) == pytest.approx(cos / 0.5)
    _assert_agree(S.T, [list(column) for column in zip(*kinds, strict=True)])


@pytest.mark.parametrize("v", [1, 2, 3])
def test_views(v):
    n = 4
    S = Scores.from_views(*_randn(v, n, 3)) * 3
    _assert_agree(S, [[0 if i == j else 1 if i % n == j % n else -1 for j in range(v * n)] for i in range(v * n)])


def test_labelled_with_unknown_labels():
    y = [0, 1, -1, 0, 2, -1, 0]
    S = Scores.from_labels(_randn(7, 3), torch.tensor(y), score=dot)
    _assert_agree(S, [[0 if i == j else 1 if y[i] == y[j] != -1 else -1 for j in range(7)] for i in range(7)])


@pytest.mark.parametrize("n", [8, 800])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
def test_labels_of_any_integer_type_are_the_same_labels(n, dtype):
    """Of unsigned ones none is -1, and 800 rows go by the shorter way."""
    wide = torch.arange(n) % 2 if dtype == torch.bool else torch.tensor([0, 255, 3, 0]).repeat(n // 4).to(dtype).long()
    z = _randn(n, 3)
    narrow = Scores.from_labels(z, wide.to(dtype))
    asked = (Scores.pos_count, Scores.pos_sum, Scores.neg_lse)
    for a, b in zip(narrow.stats(*asked), Scores.from_labels(z, wide).stats(*asked), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", [8, 800])
@pytest.mark.parametrize("y", [lambda n: torch.arange(n) / 2, lambda n: torch.arange(n - 1), lambda n: torch.arange(n)[:, None]])
def test_what_is_no_label_for_each_row_is_refused(n, y):
    wrong = "must be a tensor of .* whole numbers, one per row"
    with pytest.raises(UsageError, match=f"from_labels: labels {wrong}"):
        Scores.from_labels(_randn(n, 3), y(n))
    with pytest.raises(UsageError, match=f"exclude_negatives: column_ids {wrong}"):
        Scores.from_pairs(_randn(n, 3), _randn(n, 3)).exclude_negatives(torch.arange(n), y(n))
    with pytest.raises(UsageError, match=f"y {wrong}; got list"):
        as_ids(y(n).tolist(), n, "y")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_labels_of_any_integers_by_the_shorter_way(dtype, monkeypatch):
    monkeypatch.setattr(shortcuts_module, "MIN_TABLE_ENTRIES", 0)
    y = torch.tensor([2, 0, 2, 3], dtype=dtype)
    S = Scores(_randn(4, 3), _randn(3, 3, seed=1), y, torch.arange(3), score=dot)
    _assert_agree(S, [[1 if y[i] == j else -1 for j in range(3)] for i in range(4)])


@pytest.mark.parametrize("score", [cosine, bilinear(_randn(3, 3, seed=5)), lambda a, b: (a[:, None] - b).abs().sum(2)])
def test_matched(score):
    q, k, queue = _randn(5, 3), _randn(5, 3, seed=1), _randn(4, 3, seed=2)
    S = Scores.from_matched(q, k, negatives=queue, score=score) / 0.2
    _assert_agree(S, [[-1] * 4 + [1]] * 5)
    torch.testing.assert_close(S.to_dense()[:, 4], Scores.from_pairs(q, k, score=score).to_dense().diagonal() / 0.2)
    with pytest.raises(UsageError, match="rows have private candidates"):
        _ = S.T


def test_listed():
    pos, neg = _randn(5, 2), _randn(5, 3, seed=1)
    S = Scores.from_lists(pos, neg) / 0.5
    torch.testing.assert_close(S.to_dense(), torch.cat([pos, neg], 1) / 0.5)
    _assert_agree(S, [[1, 1, -1, -1, -1]] * 5)


@st.composite
def tables(draw):
    n, m, k = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 3))
    square = draw(st.booleans())
    m = n if square else m
    ids = lambda size: torch.tensor(draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size)))
    row_id, col_id, row_skip, col_skip = ids(n), ids(m), ids(n), ids(m)
    skipping, seed = draw(st.booleans()), draw(st.integers(0, 99))
    sign = torch.tensor(draw(st.lists(st.integers(-1, 1), min_size=n * k, max_size=n * k)), dtype=torch.int8).view(n, k)
    S = Scores(
        _randn(n, 2, seed=seed), _randn(m, 2, seed=seed + 1), row_id, col_id, exclude_self=square,
        row_skip=row_skip if skipping else None, col_skip=col_skip if skipping else None,
        scale=draw(st.sampled_from([1.0, 0.1, 7.0])), bias=draw(st.sampled_from([0.0, -2.0])),
        private_scores=_randn(n, k, seed=seed + 2) if k else None, private_signs=sign if k else None,
        score=draw(st.sampled_from([dot, squared_euclidean])),
    )  # fmt: skip

    def kind(i: int, j: int) -> int:
        if square and i == j:
            return 0
        if row_id[i] == col_id[j] != -1:
            return 1
        return 0 if skipping and row_skip[i] == col_skip[j] != -1 else -1

    return S, [[kind(i, j) for j in range(m)] + sign[i].tolist() for i in range(n)]


@pytest.mark.parametrize("worth", [shortcuts_module.MIN_TABLE_ENTRIES, 0])
@settings(max_examples=25, deadline=None)
@given(case=tables())
def test_any_table_agrees_with_the_loops_and_has_finite_gradients(worth, case):
    """Made at once, in blocks, and by the shorter ways of large tables, of which these are no larger than the others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shortcuts_module, "MIN_TABLE_ENTRIES", worth)
        patched.setattr(shortcuts_module, "MIN_SELF_TABLE_ENTRIES", worth)
        _assert_agree_with_gradients(*case)


def _assert_agree_with_gradients(S: Scores, kinds: list[list[int]]) -> None:
    _assert_agree(S, kinds)
    gradients = []
    for block in (None, 1, 4):
        q, k = S.query.clone().requires_grad_(), S.key.clone().requires_grad_()
        found = replace(S, query=q, key=k, rows_per_block=block).stats(*EVERY)
        total = sum((torch.where(x.isfinite(), x, 0.0) * math.cos(i)).sum() for i, x in enumerate(found))
        assert isinstance(total, torch.Tensor)
        gradients.append(torch.autograd.grad(total, (q, k)))
    for grads in gradients:
        for a, b in zip(gradients[0], grads, strict=True):
            assert b.isfinite().all()
            torch.testing.assert_close(a, b)


DIFFERENTIABLE = tuple(what for what in EVERY if what.reduction != "count" and what.power != 0)


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize(
    "build",
    [
        lambda a, b, s, c: Scores.from_pairs(a, b) * s + c,
        lambda a, b, s, c: Scores.from_views(a, b, score=squared_euclidean) * s + c,
        lambda a, b, s, c: Scores.from_labels(a, torch.tensor([0, 1, 0, 0, 1])) * s + c,
        lambda a, b, s, c: (
            Scores.from_labels(a, torch.tensor([0, 1, 0, 0, 1])).exclude_negatives(torch.arange(5) % 3, torch.arange(5) % 3) * s + c
        ),
        lambda a, b, s, c: Scores.from_matched(a, b, negatives=_randn(4, 3, seed=2)) * s + c,
        lambda a, b, s, c: Scores.from_pairs(a, b, score=bilinear(b[:3])) * s + c,
    ],
)
def test_gradcheck_of_every_statistic_with_learned_scale_and_bias(build, block):
    a, b = _randn(5, 3).requires_grad_(), _randn(5, 3, seed=1).requires_grad_()
    s, c = torch.tensor(1.7, dtype=torch.float64, requires_grad=True), torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *x: replace(build(*x), rows_per_block=block).stats(*DIFFERENTIABLE), (a, b, s, c), fast_mode=block is not None
    )


def test_attributes_are_single_statistics():
    S = Scores.from_pairs(_randn(4, 3), _randn(4, 3, seed=1)) / 0.3
    found = S.stats(Scores.pos_sum, Scores.neg_lse.with_power(2), Scores.neg_lse)
    torch.testing.assert_close((S.pos_sum, S.neg_lse), (found[0], found[2]))
    torch.testing.assert_close(found[1], (S * 2).neg_lse)


def test_both_ways_are_the_table_and_its_transpose():
    S = Scores.from_pairs(_randn(4, 3), _randn(6, 3, seed=1), score=bilinear(_randn(3, 3, seed=2))) / 0.3
    for version in (S, replace(S, rows_per_block=2)):
        rows, columns = version.row_and_column_stats(*EVERY)
        torch.testing.assert_close(rows, S.stats(*EVERY))
        torch.testing.assert_close(columns, S.T.stats(*EVERY))
    torch.testing.assert_close(S.T.to_dense(), S.to_dense().T)


def test_scale_and_bias_are_an_affine_map():
    S = Scores.from_matched(_randn(3, 2), _randn(3, 2, seed=1), negatives=_randn(4, 2, seed=2))
    torch.testing.assert_close(((S * 3 + 1) / 2).to_dense(), (S.to_dense() * 3 + 1) / 2)
    torch.testing.assert_close((2 * S).to_dense(), 2 * S.to_dense())


def test_a_row_without_candidates_has_no_gradient_and_no_nan():
    q = _randn(1, 3).requires_grad_()
    S = Scores.from_views(q)
    assert S.all_lse.tolist() == [-math.inf]
    assert S.neg_count.tolist() == [0]
    S.all_lse.sum().backward()
    assert q.grad is not None
    assert not q.grad.any()


def test_large_tables_without_negatives_have_no_gradient_and_no_nan():
    z = (1e6 * _randn(800, 4)).float().requires_grad_()
    found, alike = Scores.from_views(*z.split(1), score=dot).stats(Scores.neg_lse, Scores.pos_sum)
    assert (found == -math.inf).all()
    (gradient,) = torch.autograd.grad((found.exp() + 0 * alike).sum(), z)
    assert torch.equal(gradient, torch.zeros_like(z))


@pytest.mark.parametrize("power", [-1.5, -40.0, 0])
def test_any_power_by_the_shorter_way(power):
    S = Scores.from_views(_randn(400, 3), _randn(400, 3, seed=1)) / 0.1
    whole = S.to_dense().masked_fill(torch.eye(800, dtype=torch.bool), math.nan)
    expected = torch.stack([(row[~row.isnan()] * power).logsumexp(0) for row in whole])
    torch.testing.assert_close(S.stats(Scores.all_lse.with_power(power))[0], expected)


def test_differentiating_twice_is_an_error():
    a = _randn(4, 3).requires_grad_()
    with pytest.raises(NearfarError, match="only once"):
        torch.autograd.grad(Scores.from_pairs(a, a).all_lse.sum(), a, create_graph=True)


def test_log_add_exp_of_nothing():
    a = torch.tensor([-math.inf, 0.0, -math.inf], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([-math.inf, -math.inf, 2.0], dtype=torch.float64, requires_grad=True)
    y = log_add_exp(a, b)
    assert y.tolist() == [-math.inf, 0.0, 2.0]
    grads = torch.autograd.grad(y.sum(), (a, b))
    assert [g.tolist() for g in grads] == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("tau", [1e-3, 1e-2, 1.0, 10.0])
def test_single_precision_follows_double_at_every_temperature(tau):
    a, b = _randn(40, 8), _randn(40, 8, seed=1)
    exact, single = Scores.from_pairs(a, b) / tau, Scores.from_pairs(a.float(), b.float()) / tau
    for x, y in zip(single.stats(*EVERY), exact.stats(*EVERY), strict=True):
        assert x.dtype == torch.float32
        assert (x - y).abs().max() <= 3e-6 * max(1.0, float(y.abs().max()))


def test_separate_sides_do_not_underflow_each_other():
    pos, neg = torch.tensor([[1000.0]]), torch.tensor([[-1000.0, -1000.0]])
    torch.testing.assert_close(Scores.from_lists(pos, neg).neg_lse, torch.tensor([-1000.0 + math.log(2)]))


def test_half_precision_and_autocast_give_single_precision():
    a, b = _randn(6, 8).bfloat16(), _randn(6, 8, seed=1).bfloat16()
    plain = (Scores.from_pairs(a.float(), b.float()) / 0.07).all_lse
    torch.testing.assert_close((Scores.from_pairs(a, b) / 0.07).all_lse, plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for block in (None, 2):
            torch.testing.assert_close(replace(Scores.from_pairs(a.float(), b.float()) / 0.07, rows_per_block=block).all_lse, plain)


class _LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes, forward and backward."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor):
                self.largest = max(self.largest, t.untyped_storage().nbytes() // t.element_size())
        return out


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: Scores.from_pairs(a, b),
        lambda a, b: Scores.from_views(a, b),
        lambda a, b: Scores.from_labels(a, torch.arange(len(a)) // 4),
    ],
)
def test_a_streamed_table_is_never_held(build, monkeypatch):
    monkeypatch.setattr(table_module, "MAX_DENSE_ENTRIES", 1 << 12)
    monkeypatch.setattr(table_module, "ENTRIES_PER_BLOCK", 1 << 12)
    monkeypatch.setattr(fused_module, "SINGLE_THREAD_ENTRIES_PER_BLOCK", 1 << 12)
    a, b = (_randn(300, 4, seed=s).float().requires_grad_() for s in (0, 1))
    with _LargestTensor() as seen:
        S = build(a, b) / 0.1
        (sum(x.sum() for x in S.stats(Scores.all_lse, Scores.neg_lse, Scores.pos_sum, Scores.neg_softplus)) * 1.0).backward()
    assert seen.largest <= 1 << 12, "a tensor larger than a tile was made"
    assert len(S) * len(S.key) > 20 * seen.largest


def test_learned_scores_stream_in_blocks_that_fit_their_width(monkeypatch):
    rows_seen = []

    class Fusion(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(_randn(3, seed=4))

        def forward(self, a, b):
            rows_seen.append(len(a))
            return ((a[:, None] + b).tanh() * self.weight).sum(2)

    module = Fusion()
    a, b = _randn(10, 3), _randn(10, 3, seed=1)
    direct = Scores.from_pairs(a, b, score=build_learned_score(module)).all_lse
    (expected,) = torch.autograd.grad(direct.sum(), module.weight)
    rows_seen.clear()
    monkeypatch.setattr(table_module, "MAX_DENSE_ENTRIES", 60)
    monkeypatch.setattr(table_module, "ENTRIES_PER_BLOCK", 60)
    streamed = Scores.from_pairs(a, b, score=build_learned_score(module, values_per_pair=3)).all_lse
    (found,) = torch.autograd.grad(streamed.sum(), module.weight)
    assert max(rows_seen) == 60 // (10 * 3)
    torch.testing.assert_close((streamed, found), (direct, expected))


def test_wrong_tables_are_named():
    with pytest.raises(UsageError, match="needs its partner"):
        Scores.from_pairs(_randn(3, 2), _randn(2, 2))
    with pytest.raises(UsageError, match="every view"):
        Scores.from_views(_randn(3, 2), _randn(2, 2))
    with pytest.raises(UsageError, match="row_id and col_id must be given together"):
        Scores(_randn(3, 2), _randn(3, 2), row_id=torch.arange(3))
