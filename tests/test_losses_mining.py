"""Chosen, drawn and mixed negatives: against sorting by hand, frequencies against the formula, keys, and use in losses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import RandomKey, UsageError
from nearfar.losses import debiased, info_nce
from nearfar.losses.batch_triplet import batch_hard
from nearfar.losses.candidate_selection import add_negatives, select_negatives, select_positives
from nearfar.losses.hard_batches import build_hard_batch, draw_positive_pairs
from nearfar.losses.hinge import ranking_hinge, translation_hinge
from nearfar.losses.margin_based import margin_based
from nearfar.losses.mining import (
    draw_distance_weighted_negatives,
    draw_random_negatives,
    mine_hardest_negatives,
    mine_nearest_positives,
    mine_semi_hard_negatives,
)
from nearfar.losses.negative_mixing import mix_negatives, mix_query
from nearfar.losses.triple_corruption import corrupt_triples
from nearfar.scores import Scores, bilinear, cosine, dot, euclidean, l2_normalize, squared_euclidean

KEY = RandomKey(7)("mining")


def _randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _tables() -> list:
    z, y, other = _randn(10, 3), torch.tensor([0, 1, 2, 0, 1, 0, 2, 3, -1, 0]), _randn(10, 3, seed=1)
    labels = [Scores.from_labels(z, y, score=s) for s in (cosine, euclidean, squared_euclidean, dot)]
    return [
        *labels,
        Scores.from_views(z, other) / 0.3,
        Scores.from_pairs(z, other, score=bilinear(_randn(3, 3, seed=2))),
        Scores.from_matched(z, other, _randn(7, 3, seed=3)),
    ]


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("block", [None, 4])
def test_hardest_semi_hard_and_nearest_by_sorting(k, block):
    margin = 0.8
    for S in _tables():
        m = len(S.key)
        table, pos, neg = S.to_dense(), S.positive_mask, S.negative_mask
        hard, semi, near = (f(replace(S, rows_per_block=block)) for f in _choices(k, margin))
        assert hard.shape == semi.shape == near.shape == (len(S), min(k, m))
        for i in range(len(S)):
            falling = sorted(range(m), key=lambda j: -float(table[i, j]))
            bound = min((float(s) for s in table[i][pos[i]]), default=-math.inf)
            assert [j for j in hard[i].tolist() if j >= 0] == [j for j in falling if neg[i, j]][:k]
            within = [j for j in falling if neg[i, j] and bound - margin < float(table[i, j]) < bound]
            assert [j for j in semi[i].tolist() if j >= 0] == within[:k]
            assert [j for j in near[i].tolist() if j >= 0] == [j for j in falling if pos[i, j]][:k]


def _choices(k: int, margin: float):
    return (
        lambda S: mine_hardest_negatives(S, k),
        lambda S: mine_semi_hard_negatives(S, k, margin),
        lambda S: mine_nearest_positives(S, k),
    )


def test_only_the_chosen_negatives_are_left():
    for S in _tables():
        chosen = mine_hardest_negatives(S, 3)
        rows = [[float(S.to_dense()[i, j]) for j in chosen[i].tolist() if j >= 0] for i in range(len(S))]
        kept = select_negatives(S, chosen)
        assert kept.neg_count.tolist() == [len(r) for r in rows]
        assert kept.pos_count.tolist() == S.pos_count.tolist()
        torch.testing.assert_close(kept.neg_sum, torch.tensor([math.fsum(r) for r in rows]).double())
        torch.testing.assert_close(kept.pos_sum, S.pos_sum)
        everybody = select_negatives(S, mine_hardest_negatives(S, len(S.key)))
        torch.testing.assert_close(info_nce(everybody), info_nce(S))
        assert (info_nce(kept) <= info_nce(S) + 1e-12).all(), "fewer candidates to be told apart"
        torch.testing.assert_close(batch_hard(kept), batch_hard(S), rtol=1e-6, atol=1e-9)


def test_only_the_chosen_positives_are_left():
    for S in _tables()[:5]:
        chosen = mine_nearest_positives(S, 1)
        kept = select_positives(S, chosen)
        assert kept.pos_count.tolist() == (chosen >= 0).sum(1).tolist()
        torch.testing.assert_close(kept.neg_lse, S.neg_lse)
        told = chosen[:, 0] >= 0
        torch.testing.assert_close(kept.pos_sum[told], S.to_dense().gather(1, chosen.clamp_min(0))[:, 0][told])
    with pytest.raises(UsageError, match="already skips"):
        select_positives(S.exclude_negatives(torch.arange(20), torch.arange(20)), chosen)


def test_gradients_reach_the_chosen_candidates():
    z, y, W = _randn(6, 3).requires_grad_(), torch.arange(6) % 2, _randn(3, 3, seed=1).requires_grad_()
    new = _randn(6, 2, 3, seed=2).requires_grad_()

    def loss(z: Tensor, W: Tensor, new: Tensor) -> Tensor:
        S = Scores.from_labels(z, y, score=bilinear(W))
        S = select_negatives(S, mine_hardest_negatives(S, 2))
        return info_nce(add_negatives(select_positives(replace(S, row_skip=None, col_skip=None), mine_nearest_positives(S, 1)), new))

    assert torch.autograd.gradcheck(loss, (z, W, new), fast_mode=True)


def test_mined_negatives_of_a_queue_equal_cross_entropy_on_them():
    q, k, queue = (F.normalize(_randn(n, 4, seed=n), dim=1) for n in (5, 6, 40))
    k = k[:5]
    S = Scores.from_matched(q, k, negatives=queue)
    hardest = (q @ queue.T).topk(8).values
    logits = torch.cat([(q * k).sum(1, keepdim=True), hardest], 1) / 0.1
    expected = F.cross_entropy(logits, torch.zeros(5).long(), reduction="none")
    torch.testing.assert_close(info_nce(select_negatives(S, mine_hardest_negatives(S, 8)) / 0.1), expected)
    torch.testing.assert_close(info_nce(Scores.from_lists((q * k).sum(1, keepdim=True), hardest) / 0.1), expected)


def test_draws_belong_to_key_and_slot_and_not_to_blocks():
    z, y, slots = _randn(12, 4), torch.arange(12) % 3, torch.arange(100, 112)
    for draw in (draw_random_negatives, draw_distance_weighted_negatives):
        S = Scores.from_labels(z, y)
        found = draw(S, 3, KEY, slots)
        assert found.equal(draw(replace(S, rows_per_block=5), 3, KEY, slots))
        assert not found.equal(draw(S, 3, KEY("other"), slots))
        some = replace(S, query=S.query[4:7], row_id=y[4:7], diagonal=torch.arange(4, 7))
        assert draw(some, 3, KEY, slots[4:7]).equal(found[4:7])
        assert S.negative_mask.gather(1, found).all()
        assert all(len(set(row)) == 3 for row in found.tolist()), "without replacement"
        assert draw(Scores.from_labels(z, torch.zeros(12).long()), 3, KEY, slots).eq(-1).all()


def test_random_negatives_are_uniform():
    z, y = _randn(6, 2), torch.tensor([0, 0, 1, 2, 3, 4])
    S = Scores.from_labels(z[torch.zeros(3000).long()], torch.zeros(3000).long())
    S = replace(S, key=l2_normalize(z), col_id=y, exclude_self=False)
    counts = draw_random_negatives(S, 1, KEY, torch.arange(3000))[:, 0].bincount(minlength=6)
    assert counts[:2].tolist() == [0, 0]
    assert (counts[2:] - 750).abs().max() < 4 * math.sqrt(750)


def test_distance_weighted_frequencies_follow_the_formula():
    """One anchor, drawn for many slots: frequencies are min(λ, 1/q(D)) over their sum; beyond 1.4 nobody is drawn."""
    d, n = 5, 6000
    distances = [0.1, 0.4, 0.7, 0.9, 1.1, 1.3, 1.39, 1.45, 1.9]
    cosines = torch.tensor([1 - x * x / 2 for x in distances]).double()
    points = torch.zeros(len(distances), d).double()
    points[:, 0], points[:, 1] = cosines, (1 - cosines**2).sqrt()
    S = Scores.from_pairs(torch.eye(d).double()[:1].repeat(n, 1), torch.cat([torch.eye(d).double()[:1].repeat(n, 1), points]))
    S = replace(S, key=S.key[n:], row_id=None, col_id=None, id_period=None)
    drawn = draw_distance_weighted_negatives(S, 1, KEY, torch.arange(n))[:, 0].bincount(minlength=len(distances))
    q = lambda x: x ** (d - 2) * (1 - x * x / 4) ** ((d - 3) / 2)
    weights = [min(1 / q(0.5), 1 / q(x)) if x < 1.4 else 0.0 for x in distances]
    for count, weight in zip(drawn.tolist(), weights, strict=True):
        share = weight / sum(weights)
        assert abs(count - n * share) <= 4 * math.sqrt(n * share * (1 - share)), (drawn, weights)
    far = replace(S, key=points[7:])
    assert draw_distance_weighted_negatives(far, 2, KEY, torch.arange(n)).sort(1).values.equal(torch.tensor([[0, 1]]).repeat(n, 1))


def test_distance_weighted_sampling_evens_out_distances_on_the_sphere():
    """Random points of 16 dimensions lie at about √2 from each other; those drawn are spread over nearer distances too."""
    z, y = l2_normalize(_randn(600, 16)), torch.arange(600)
    S = Scores.from_labels(z, y, score=euclidean)
    D = torch.cdist(z, z)
    uniform, weighted = (D.gather(1, f(S, 5, KEY, y)) for f in (draw_random_negatives, draw_distance_weighted_negatives))
    assert weighted.quantile(0.1) < uniform.quantile(0.1) - 0.1
    assert weighted.mean() < uniform[uniform < 1.4].mean() - 0.1
    loss = margin_based(select_negatives(S, draw_distance_weighted_negatives(S, 5, KEY, y)), 1.2, 0.2)
    assert loss > margin_based(select_negatives(S, draw_random_negatives(S, 5, KEY, y)), 1.2, 0.2)


@pytest.mark.parametrize("d", [1, 2, 3, 512])
def test_distance_weights_are_finite_in_any_dimension(d):
    z = torch.cat([_randn(6, d).float(), torch.zeros(1, d), _randn(6, d).float()[:1], -_randn(6, d).float()[:1]])
    found = draw_distance_weighted_negatives(Scores.from_labels(z, torch.arange(9), score=euclidean), 8, KEY, torch.arange(9))
    assert all(set(row) == set(range(9)) - {i} for i, row in enumerate(found.tolist()))
    with pytest.raises(UsageError, match="must be vectors"):
        draw_distance_weighted_negatives(
            Scores.from_pairs(_randn(2, 3, 4), _randn(2, 3, 4), score=lambda a, b: a.sum((1, 2))[:, None] * b.sum((1, 2))),
            1,
            KEY,
            torch.arange(2),
        )


def test_mixed_negatives_lie_between_two_of_the_hardest():
    q, queue, slots = l2_normalize(_randn(4, 6)), l2_normalize(_randn(50, 6, seed=1)), torch.arange(4)
    hard = mine_hardest_negatives(Scores.from_matched(q, q, negatives=queue), 5)
    mixed = mix_negatives(queue, hard, 20, KEY, slots)
    assert mixed.shape == (4, 20, 6)
    torch.testing.assert_close(mixed.norm(dim=2), torch.ones(4, 20).double())
    for i in range(4):
        for h in mixed[i]:
            fits = [_weights(queue[[a, b]], h) for a in hard[i].tolist() for b in hard[i].tolist() if a < b]
            assert any((w > 0).all() for w in fits if w is not None), "a convex combination, up to length"
    assert mix_negatives(queue, hard[2:], 20, KEY, slots[2:]).equal(mixed[2:]), "a row's mixtures are its own"
    assert not mix_negatives(queue, hard, 20, KEY("again"), slots).equal(mixed)


def _weights(two: Tensor, mixture: Tensor) -> Tensor | None:
    """The weights of two vectors in their mixture; None where it is none of them."""
    weights = torch.linalg.lstsq(two.T, mixture[:, None]).solution[:, 0]
    return weights if torch.allclose(weights @ two, mixture) else None


def test_mixing_with_the_query_is_harder_but_never_past_the_middle():
    q, queue, slots = l2_normalize(_randn(8, 6)).requires_grad_(), l2_normalize(_randn(50, 6, seed=1)), torch.arange(8)
    S = Scores.from_matched(q, q, negatives=queue)
    hard = mine_hardest_negatives(S, 5)
    between, harder = mix_negatives(queue, hard, 64, KEY, slots), mix_query(q, queue, hard, 64, KEY("'"), slots)
    assert not harder.requires_grad
    cosines = torch.einsum("nd,nkd->nk", q.detach(), harder)
    assert cosines.mean() > torch.einsum("nd,nkd->nk", q.detach(), between).mean()
    nearest = S.to_dense()[:, :50].amax(1).detach()
    assert (cosines.amax(1) <= ((1 + nearest) / 2).sqrt() + 1e-9).all(), "at beta = 1/2 the angle to the query is half"
    losses = [info_nce(t / 0.2).mean() for t in (S, add_negatives(S, between), add_negatives(add_negatives(S, between), harder))]
    assert losses[0] < losses[1] < losses[2]


def test_added_negatives_are_columns_of_their_row_alone():
    q, k, queue, new = (
        l2_normalize(_randn(3, 4)),
        l2_normalize(_randn(3, 4, seed=1)),
        l2_normalize(_randn(6, 4, seed=2)),
        l2_normalize(_randn(3, 2, 4, seed=3)),
    )
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T, torch.einsum("nd,nkd->nk", q, new)], 1) / 0.2
    expected = F.cross_entropy(logits, torch.zeros(3).long(), reduction="none")
    S = Scores.from_matched(q, k, negatives=queue) / 0.2
    torch.testing.assert_close(info_nce(add_negatives(S, new)), expected)
    torch.testing.assert_close(info_nce(add_negatives(S, 5 * new)), expected, msg="cosine: lengths do not matter")
    torch.testing.assert_close(info_nce(add_negatives(S, torch.zeros(3, 2, 4).double())), info_nce(S), msg="zeros are nobody")
    torch.testing.assert_close(info_nce(add_negatives(S, new[:, :0])), info_nce(S))


def test_nothing_to_mine_and_nothing_to_mix():
    z, slots = _randn(3, 4).requires_grad_(), torch.arange(3)
    alone = Scores.from_labels(z, torch.zeros(3).long())
    for columns in (mine_hardest_negatives(alone, 2), mine_hardest_negatives(Scores.from_matched(z, z, negatives=z[:0]), 2)):
        assert (columns == -1).all()
        for mixed in (mix_negatives(z, columns, 4, KEY, slots), mix_query(z, z, columns, 4, KEY, slots)):
            assert mixed.shape == (3, 4, 4)
            assert not mixed.any()
            loss = info_nce(add_negatives(Scores.from_matched(z, z, negatives=z[:0]), mixed))
            assert not loss.any()
            assert not torch.autograd.grad(loss.sum(), z)[0].any()
    assert not ranking_hinge(select_negatives(alone, mine_hardest_negatives(alone, 2))).any()
    with pytest.raises(UsageError, match="at least 1"):
        mine_hardest_negatives(alone, 0)


def test_false_negatives_removed_corrected_or_left_in():
    """With an oracle the loss has no false negatives; the correction comes nearer to it than leaving them in."""
    g = torch.Generator().manual_seed(0)
    centres, y = 2 * torch.randn(5, 8, generator=g), torch.arange(200) % 5
    a, b = (centres[y] + 0.5 * torch.randn(200, 8, generator=g) for _ in range(2))
    S = Scores.from_pairs(a, b) / 0.5
    biased, oracle, corrected = (
        x.mean() for x in (info_nce(S), info_nce(S.exclude_negatives(y, y)), debiased(S, false_negative_share=0.2))
    )
    assert oracle < biased
    assert abs(corrected - oracle) < 0.5 * abs(biased - oracle)
    assert S.exclude_negatives(y, y).neg_count.tolist() == [160.0] * 200


def test_positive_pairs_share_a_label_and_reach_everybody():
    y = torch.tensor([3, 1, 3, -1, 1, 1, 7, -1, 3, 3])
    found = draw_positive_pairs(y, KEY, torch.arange(2000))
    a, b = found.T
    assert (a != b).all()
    assert (y[a] == y[b]).all()
    counts = torch.bincount(a, minlength=10)
    assert counts[[3, 6, 7]].tolist() == [0, 0, 0]
    assert (counts[[0, 1, 2, 4, 5, 8, 9]] - 2000 / 7).abs().max() < 4 * math.sqrt(2000 / 7)
    assert {tuple(p) for p in found.tolist()} == {(i, j) for i in range(10) for j in range(10) if i != j and y[i] == y[j] != -1}
    assert draw_positive_pairs(y, KEY, torch.arange(50, 60)).equal(found[50:60])
    with pytest.raises(UsageError, match="no label occurs twice"):
        draw_positive_pairs(torch.arange(5), KEY, torch.arange(3))


def test_a_hard_batch_has_the_pairs_and_what_is_nearest_to_them():
    z, y = _randn(40, 3), torch.arange(40) % 8
    chosen = draw_positive_pairs(y, KEY, torch.arange(2))
    batch = build_hard_batch(z, y, chosen, 12).tolist()
    seeds = list(dict.fromkeys(chosen.flatten().tolist()))
    assert batch[: len(seeds)] == seeds
    assert len(set(batch)) == len(batch) == 12
    D = torch.cdist(z, z)
    ranked = [sorted((j for j in range(40) if y[j] != y[i]), key=lambda j: float(D[i, j])) for i in chosen.flatten().tolist()]
    by_rank = dict.fromkeys([*seeds, *(r[depth] for depth in range(12) for r in ranked)])
    assert batch == list(by_rank)[:12]
    assert len(build_hard_batch(z[:5], torch.tensor([0, 0, 0, 1, -1]), torch.tensor([[0, 1]]), 5)) == 4, (
        "row 2 is no negative, and there are no more"
    )
    with pytest.raises(UsageError, match="more than the requested 3"):
        build_hard_batch(z, y, chosen, 3)


def test_heads_and_tails_are_corrupted_alike():
    """Tails alone, as some descriptions have it, never say anything against a wrong head."""
    triples = torch.tensor([[0, 5, 1], [2, 5, 3], [4, 6, 0]])
    found = corrupt_triples(triples, 5, 400, KEY, torch.arange(3))
    changed = found != triples[:, None]
    assert (changed.sum(2) == 1).all(), "one end, and it really is another"
    assert not changed[:, :, 1].any()
    assert abs(float(changed[:, :, 0].double().mean()) - 0.5) < 0.05
    assert found[:, :, [0, 2]].min() == 0
    assert found[:, :, [0, 2]].max() == 4
    assert corrupt_triples(triples[1:], 5, 400, KEY, torch.arange(1, 3)).equal(found[1:])
    heads = {int(h) for h in found[0, :, 0]} - {0}
    assert heads == {1, 2, 3, 4}

    def pressure_on_heads(negatives: Tensor) -> Tensor:
        entity, relation = _randn(5, 2).requires_grad_(), _randn(7, 2, seed=1)
        distance = lambda t: (entity[t[..., 0]] + relation[t[..., 1]] - entity[t[..., 2]]).norm(dim=-1)
        loss = translation_hinge(distance(triples[:1]), distance(negatives[:1]), 5.0).sum()
        return torch.autograd.grad(loss, entity)[0][4]  # entity 4 is neither end of triple 0

    tails_only = triples[:, None].repeat(1, 3, 1)
    tails_only[:, :, 2] = torch.tensor([1, 2, 3])
    assert not pressure_on_heads(tails_only).any()
    assert pressure_on_heads(found).any()
    with pytest.raises(UsageError, match="at least two"):
        corrupt_triples(triples, 1, 2, KEY, torch.arange(3))
