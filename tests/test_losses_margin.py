"""Pair, lifted, margin-based and hinge losses against loops and an independent library; what wrongly printed forms would do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.losses import sigmoid
from nearfar.losses.batch_triplet import batch_hard
from nearfar.losses.candidate_selection import select_positives
from nearfar.losses.contrastive_pair import build_pair_scores, contrastive_pair, contrastive_pair_squared
from nearfar.losses.hinge import energy_hinge, lmnn, nt_margin, ranking_hinge, translation_hinge
from nearfar.losses.lifted_structure import lifted_structure, lifted_structure_generalized, lifted_structure_smooth
from nearfar.losses.margin_based import margin_based
from nearfar.losses.mining import mine_nearest_positives
from nearfar.scores import Scores, cosine, euclidean, squared_euclidean

M = 1.3
LOSSES = {
    "pair": (lambda S: contrastive_pair(S, M), euclidean),
    "pair_of_squares": (lambda S: contrastive_pair_squared(S, M), squared_euclidean),
    "lifted": (lambda S: lifted_structure(S, M), euclidean),
    "lifted_smooth": (lambda S: lifted_structure_smooth(S, M), euclidean),
    "lifted_generalised": (lambda S: lifted_structure_generalized(S, M), euclidean),
    "margin_based": (lambda S: margin_based(S, 1.1, 0.4), euclidean),
    "ranking": (lambda S: ranking_hinge(S, M), euclidean),
    "lmnn": (lambda S: lmnn(S, M, push_weight=0.3), squared_euclidean),
}


def _randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _batch() -> tuple[Tensor, Tensor]:
    return 0.7 * _randn(9, 3), torch.tensor([0, 1, 2, 0, 1, 0, 2, 3, -1])


def _oracle(name: str, z: Tensor, y: Tensor) -> Tensor:
    """Each loss from its definition, by loops."""
    labels, n = y.tolist(), len(y)
    D = lambda i, j: (z[i] - z[j]).norm()
    P = [[j for j in range(n) if j != i and labels[j] == labels[i] != -1] for i in range(n)]
    N = [[j for j in range(n) if j != i and j not in P[i]] for i in range(n)]
    zero = torch.zeros((), dtype=z.dtype)
    add = lambda terms: sum(terms, zero)
    hinges = lambda i, d: add(F.relu(M + d(i, p) - d(i, j)) for p in P[i] for j in N[i])
    rows = []
    if name in ("lifted", "lifted_smooth"):
        terms = []
        for i in range(n):
            for j in P[i]:
                near = torch.stack([M - D(i, k) for k in N[i]] + [M - D(j, k) for k in N[j]])
                terms.append(F.relu(D(i, j) + (near.max() if name == "lifted" else near.logsumexp(0))).square())
        return add(terms) / (2 * len(terms))
    if name == "margin_based":
        terms = [F.relu(0.4 + D(i, p) - 1.1) for i in range(n) for p in P[i]] + [
            F.relu(0.4 - D(i, j) + 1.1) for i in range(n) for j in N[i]
        ]
        return add(terms) / sum(t > 0 for t in terms)
    for i in range(n):
        if name == "pair":
            value = add([D(i, p) ** 2 for p in P[i]] + [F.relu(M - D(i, j)) ** 2 for j in N[i]]) / (n - 1)
        elif name == "pair_of_squares":
            value = add([D(i, p) ** 2 for p in P[i]] + [F.relu(M - D(i, j) ** 2) for j in N[i]]) / (n - 1)
        elif name == "ranking":
            value = hinges(i, D) / max(1, len(P[i]) * len(N[i]))
        elif name == "lmnn":
            value = 0.7 * add(D(i, p) ** 2 for p in P[i]) + 0.3 * hinges(i, lambda i, j: D(i, j) ** 2)
        else:
            far, near = (torch.stack([s * D(i, j) for j in js]).logsumexp(0) if js else None for s, js in ((1, P[i]), (-1, N[i])))
            value = zero if far is None or near is None else F.relu(far + near + M)
        rows.append(value)
    return torch.stack(rows)


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_equal_loops(name):
    z, y = _batch()
    z.requires_grad_()
    loss, score = LOSSES[name]
    found, expected = loss(Scores.from_labels(z, y, score=score)), _oracle(name, z, y)
    torch.testing.assert_close(found, expected)
    assert (expected >= 0).all()
    assert expected.sum() > 0
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), z)[0] for x in (found, expected)))


@pytest.mark.parametrize("name", LOSSES)
def test_gradcheck(name):
    z, y = _batch()
    loss, score = LOSSES[name]
    tables = lambda z: [
        Scores.from_labels(z, y, score=score),
        Scores.from_views(z[:4], z[4:8], score=score),
        Scores.from_pairs(z[:4], z[4:], score=score),
    ]
    assert torch.autograd.gradcheck(
        lambda z: tuple(loss(replace(S, rows_per_block=4)) for S in tables(z)), z.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("name", LOSSES)
def test_neither_the_order_of_rows_nor_the_block_size_matters(name):
    z, y = _batch()
    loss, score = LOSSES[name]
    found = []
    for block in (None, 1, 4, 9, 50):
        x = z.clone().requires_grad_()
        values = loss(replace(Scores.from_labels(x, y, score=score), rows_per_block=block))
        found.append((values.detach(), *torch.autograd.grad(values.square().sum(), x)))
        torch.testing.assert_close(found[-1], found[0])
    order = torch.tensor([3, 8, 1, 0, 6, 7, 2, 5, 4])
    moved = loss(Scores.from_labels(z[order], y[order], score=score))
    torch.testing.assert_close(moved, found[0][0] if moved.dim() == 0 else found[0][0][order])


@pytest.mark.parametrize("name", [k for k in LOSSES if not k.startswith("lifted_") and k != "lifted"])
def test_the_gradient_raises_positives_and_lowers_negatives(name):
    pos, neg = (-_randn(20, 2).abs()).requires_grad_(), (-_randn(20, 4, seed=1).abs()).requires_grad_()
    LOSSES[name][0](Scores.from_lists(pos, neg)).sum().backward()
    assert pos.grad is not None
    assert neg.grad is not None
    assert (pos.grad <= 0).all()
    assert (neg.grad >= 0).all()
    assert pos.grad.any()
    assert neg.grad.any()


@pytest.mark.parametrize("name", ["lifted", "lifted_smooth", "lifted_generalised", "pair", "margin_based"])
def test_a_step_downhill_brings_classes_together_and_others_apart(name):
    z, y = torch.tensor([[0.0, 0], [0.5, 0], [0.2, 0.1], [0.3, 0.4]]).double().requires_grad_(), torch.tensor([0, 0, 1, 1])
    loss, score = LOSSES[name]
    (gradient,) = torch.autograd.grad(loss(Scores.from_labels(z, y, score=score)).sum(), z)
    before, after = (torch.cdist(x, x) for x in (z.detach(), z.detach() - 1e-3 * gradient))
    same = y[:, None] == y
    assert after[~same].mean() > before[~same].mean()
    assert (after / before)[~same].mean() > (after / before)[same & (before > 0)].mean()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_no_nan_for_zero_rows_duplicates_lonely_rows_and_collapse(name, dtype):
    base = _randn(6, 4).to(dtype)
    base[1], base[3], base[5] = 0, base[2], -base[4]
    several = torch.tensor([0, 0, 1, 1, -1, 2])
    cases = [(base, several), (base, torch.zeros(6).long()), (base, torch.arange(6)), (base[:1], several[:1])]
    cases += [(torch.zeros_like(base), several), (base[:1].repeat(6, 1), several)]
    loss, score = LOSSES[name]
    for vectors, y in cases:
        z = vectors.clone().requires_grad_()
        values = loss(Scores.from_labels(z, y, score=score))
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        values.sum().backward()
        assert z.grad is not None
        assert values.isfinite().all()
        assert z.grad.isfinite().all()
        if len(y) < 2:
            assert not values.any()
            assert not z.grad.any()


def test_pairs_that_were_judged_one_by_one():
    a, b, same = _randn(8, 3).requires_grad_(), _randn(8, 3, seed=1).requires_grad_(), torch.arange(8) % 2 == 0
    D = (a - b).norm(dim=1)
    torch.testing.assert_close(contrastive_pair(build_pair_scores(a, b, same), 2.5), torch.where(same, D**2, F.relu(2.5 - D) ** 2))
    squares = contrastive_pair_squared(build_pair_scores(a, b, same, score=squared_euclidean), 2.5)
    torch.testing.assert_close(squares, torch.where(same, D**2, F.relu(2.5 - D**2)))
    assert torch.autograd.gradcheck(lambda a, b: contrastive_pair(build_pair_scores(a, b, same), 2.5), (a, b), fast_mode=True)


def test_two_pair_losses_go_by_one_name():
    """max(0, m - D²) ends at the margin with full force, max(0, m - D)² fades out; with m = 1 they even share the margin."""
    origin, far = torch.zeros(1, 1).double(), torch.tensor([False])
    at = lambda x: torch.tensor([[x]], dtype=torch.float64, requires_grad=True)
    for distance in (0.2, 0.5, 0.999):
        x = at(distance)
        plain, squares = (
            contrastive_pair(build_pair_scores(origin, x, far), 1.0),
            contrastive_pair_squared(build_pair_scores(origin, x, far, score=squared_euclidean), 1.0),
        )
        assert float(squares.detach()) > float(plain.detach()) + 1e-4
        forces = [abs(float(torch.autograd.grad(v.sum(), x)[0])) for v in (plain, squares)]
        assert forces == pytest.approx([2 * (1 - distance), 2 * distance])


def test_duplicates_that_should_differ_get_no_gradient_instead_of_nan():
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    values = contrastive_pair(build_pair_scores(a, b, torch.tensor([False, True])), 1.0)
    assert values.tolist() == [1.0, 0.0]
    assert not any(g.any() for g in torch.autograd.grad(values.sum(), (a, b)))


def test_agreement_with_pytorch_metric_learning():
    from pytorch_metric_learning import distances, reducers
    from pytorch_metric_learning import losses as library

    z, y = _randn(12, 3).requires_grad_(), torch.arange(12) % 3
    S = Scores.from_labels(z, y, score=euclidean)
    setting = {"distance": distances.LpDistance(normalize_embeddings=False), "reducer": reducers.MeanReducer()}
    squares = distances.LpDistance(power=2, normalize_embeddings=False)
    contrastive = library.ContrastiveLoss(pos_margin=0, neg_margin=M, distance=squares, reducer=reducers.SumReducer())
    cases = [
        (lifted_structure_smooth(S, M), library.LiftedStructureLoss(neg_margin=M, pos_margin=0, **setting)(z, y)),
        (lifted_structure_generalized(S, M).mean(), library.GeneralizedLiftedStructureLoss(neg_margin=M, pos_margin=0, **setting)(z, y)),
        (11 * contrastive_pair_squared(Scores.from_labels(z, y, score=squared_euclidean), M).sum(), contrastive(z, y)),
    ]
    for ours, theirs in cases:
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(x, z)[0] for x in (ours, theirs)))


def test_the_smooth_lifted_loss_bounds_the_hard_one():
    z, y = _batch()
    S = Scores.from_labels(z, y, score=euclidean)
    assert lifted_structure_smooth(S, M) > lifted_structure(S, M)
    torch.testing.assert_close(lifted_structure_generalized(S * 200, 0) / 200, batch_hard(S, 0), atol=0.02, rtol=0)


def test_the_boundary_of_the_margin_based_loss_is_learned():
    z, y = _batch()
    S = Scores.from_labels(z, y, score=euclidean)
    table, pos, neg = -S.to_dense(), S.positive_mask, S.negative_mask
    beta = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    value = margin_based(S, beta, 0.4)
    too_far, too_near = ((0.4 + table - 1.1 > 0) & pos).sum(), ((0.4 - table + 1.1 > 0) & neg).sum()
    torch.testing.assert_close(torch.autograd.grad(value, beta)[0], (too_near - too_far) / (too_near + too_far).double())
    classes = torch.tensor([0.9, 1.0, 1.2, 1.4, 1.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: margin_based(S, b[y], 0.4), classes)
    torch.testing.assert_close(margin_based(S, torch.full((9,), 1.1).double(), 0.4), value)


@pytest.mark.parametrize(
    "loss",
    [contrastive_pair, contrastive_pair_squared, lifted_structure, lifted_structure_smooth, lifted_structure_generalized, margin_based],
)
def test_losses_of_distances_refuse_similarities(loss):
    z, y = _batch()
    with pytest.raises(UsageError, match="needs a table of negative distances"):
        loss(Scores.from_labels(z, y))
    assert loss(Scores.from_labels(z, y, score=cosine) + (-1)).isfinite().all(), "cosine - 1 is minus a distance"


def test_simclrs_margin_loss_is_to_be_minimised():
    """-max(u·v- - u·v+ + m, 0) as printed is an objective: minimized, it would push positives apart."""
    z0, z1 = _randn(4, 3), _randn(4, 3, seed=1)
    u = F.normalize(torch.cat([z0, z1]), dim=1)
    terms = [float(F.relu(u[i] @ u[j] - u[i] @ u[(i + 4) % 8] + 0.4)) for i in range(8) for j in range(8) if j % 4 != i % 4]
    assert float(nt_margin(z0, z1, 0.4)) == pytest.approx(sum(terms) / len(terms))
    pos, neg = torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    ours = torch.autograd.grad(ranking_hinge(Scores.from_lists(pos, neg), 0.4).sum(), (pos, neg))
    printed = torch.autograd.grad(-F.relu(neg - pos + 0.4).sum(), (pos, neg))
    assert [float(g) for g in ours] == [-1, 1]
    assert [float(g) for g in printed] == [1, -1]


def test_translation_hinge():
    pos, neg = _randn(5).abs().requires_grad_(), _randn(5, 3, seed=1).abs().requires_grad_()
    expected = torch.stack([torch.stack([F.relu(1.5 + pos[i] - neg[i, j]) for j in range(3)]).mean() for i in range(5)])
    torch.testing.assert_close(translation_hinge(pos, neg, 1.5), expected)
    assert torch.autograd.gradcheck(lambda p, n: translation_hinge(p, n, 1.5), (pos, neg), fast_mode=True)


def test_energy_hinge_is_the_pair_loss_and_no_ranking():
    """Called pair loss in one place, hinge in another: the same. A ranking would stop pulling once the gap is wide."""
    pos, neg = _randn(6).square().requires_grad_(), _randn(6, 1, seed=1).square()
    found = energy_hinge(pos, neg, 1.0)
    torch.testing.assert_close(found, pos + F.relu(1 - neg[:, 0]))
    torch.testing.assert_close(found, 2 * contrastive_pair_squared(Scores.from_lists(-pos[:, None], -neg), 1.0))
    assert (torch.autograd.grad(found.sum(), pos)[0] == 1).all()
    far = torch.full((6, 1), 100.0).double()
    assert not torch.autograd.grad(translation_hinge(pos, far, 1.0).sum(), pos)[0].any()
    assert energy_hinge(pos, far[:, :0]).equal(pos)


def test_lmnn_with_target_neighbours_of_the_input_space():
    x, L, y = _randn(10, 4), _randn(4, 2, seed=1), torch.arange(10) % 2
    S = Scores.from_labels(x @ L, y, score=squared_euclidean)
    found = lmnn(
        select_positives(S, mine_nearest_positives(Scores.from_labels(x, y, score=squared_euclidean), num_positives=2)),
        margin=1.0,
        push_weight=0.5,
    )
    inside, mapped = torch.cdist(x, x), torch.cdist(x @ L, x @ L).square()
    for i in range(10):
        same = sorted((j for j in range(10) if j != i and y[j] == y[i]), key=lambda j: float(inside[i, j]))[:2]
        other = [j for j in range(10) if y[j] != y[i]]
        pull = sum(float(mapped[i, p]) for p in same)
        push = sum(max(0.0, 1 + float(mapped[i, p] - mapped[i, j])) for p in same for j in other)
        assert float(found[i]) == pytest.approx(0.5 * pull + 0.5 * push)


def test_a_classifier_of_the_distance_is_the_sigmoid_loss():
    """softmax(w D + b) over (apart, alike), as AVE-Net has it, with scalars w and b: the logit is the difference of the two."""
    a, b, same = _randn(6, 3), _randn(6, 3, seed=1), torch.arange(6) % 2 == 0
    w, c = torch.tensor([0.8, -1.5]).double().requires_grad_(), torch.tensor([0.1, 0.7]).double().requires_grad_()
    expected = F.cross_entropy((a - b).norm(dim=1)[:, None] * w + c, same.long(), reduction="none")
    found = sigmoid(build_pair_scores(a, b, same) * (w[0] - w[1]) + (c[1] - c[0]))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), (w, c)) for x in (found, expected)))
    assert math.isclose(float(sigmoid(build_pair_scores(a[:1], a[:1], same[:1])).detach()), math.log(2))
