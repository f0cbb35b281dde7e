"""A NaN is never hidden: one NaN row in a batch makes the losses that look at it NaN, and changes no other value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nearfar import losses as L
from nearfar import scores as C
from nearfar.core import RandomKey, UsageError
from nearfar.scores import Score, Scores, shortcuts

N, D, K, BROKEN = 8, 4, 3, 2
draw = torch.Generator().manual_seed(0)


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def spoiled(x: Tensor, row: int = BROKEN) -> Tensor:
    """A copy with one NaN in one row."""
    x = x.clone()
    x[(row, *(0,) * (x.ndim - 1))] = torch.nan
    return x


a, b, c, bank = vectors(N, D), vectors(N, D), vectors(N, D), vectors(2 * N, D)
mixed = vectors(2 * N, 2, D)
of_pos, of_neg, many, weights = vectors(N, 2), vectors(N, K), vectors(N, K, D), vectors(4, D)
y, slots, rng_key = torch.arange(N) % 4, torch.arange(N), RandomKey(0)

# --- scores -------------------------------------------------------------------------------------------------------

SCORES: dict[str, Callable[[], Score]] = {
    **{name: lambda name=name: getattr(C, name) for name in ("dot", "cosine", "unit_dot", "squared_euclidean", "euclidean", "manhattan")},
    "rbf": C.rbf,
    "riesz": C.riesz,
    "order_embedding": lambda: C.order_embedding(D),
    "bilinear": lambda: C.bilinear(torch.ones(D, D, dtype=torch.float64).triu()),
    "build_learned_score": lambda: C.build_learned_score(torch.nn.Bilinear(D, D, 1).double().requires_grad_(False).apply(_as_table)),
    "ConcatCritic": lambda: C.ConcatCritic(D, D, 8).double().requires_grad_(False).as_score(),
    "SeparableCritic": lambda: C.SeparableCritic(D, D, 8, 4).double().requires_grad_(False).as_score(),
}
NO_SCORES = {
    "Number", "Scalar", "Score", "ScoreLike", "Scores", "Statistic", "Temperature", "as_score", "l2_normalize", "log_add_exp",
    "log_sum_exp", "rowmap",
}  # fmt: skip
OVER_RANKS = {"gather_with_gradient", "shared_over_ranks"}


def _as_table(module: torch.nn.Bilinear) -> None:
    pairwise = module.forward
    module.forward = lambda x, z: pairwise(x[:, None].expand(-1, len(z), -1), z.expand(len(x), -1, -1)).squeeze(-1)


def test_every_score_is_covered():
    assert set(SCORES) | {"CrossCritic"} | NO_SCORES | OVER_RANKS == set(C.__all__)


@pytest.mark.parametrize("name", SCORES)
def test_a_nan_row_makes_its_scores_nan_and_leaves_the_others(name):
    score, other = SCORES[name](), bank
    clean = score(a, other)
    of_row, of_column = score(spoiled(a), other), score(a, spoiled(other))
    kept_rows, kept_columns = (torch.arange(n) != BROKEN for n in (N, len(other)))
    assert of_row[BROKEN].isnan().all()
    assert of_column[:, BROKEN].isnan().all()
    torch.testing.assert_close(of_row[kept_rows], clean[kept_rows])
    torch.testing.assert_close(of_column[:, kept_columns], clean[:, kept_columns])
    for x, z in ((spoiled(a), b), (a, spoiled(b))):
        found = score.score_pairs(score.prepare_vectors(x), score.prepare_vectors(z))
        assert found[BROKEN].isnan()
        torch.testing.assert_close(found[kept_rows], score.score_pairs(score.prepare_vectors(a), score.prepare_vectors(b))[kept_rows])


def test_a_nan_token_makes_the_scores_of_its_sequence_nan():
    score = C.CrossCritic(D, 2, 1).double().requires_grad_(False).as_score(6)
    found = score(spoiled(many), many)
    kept = torch.arange(N) != BROKEN
    assert found[BROKEN].isnan().all()
    torch.testing.assert_close(found[kept], score(many, many)[kept])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("score", [C.euclidean, C.squared_euclidean])
def test_distances_far_from_the_origin_keep_their_digits_next_to_a_broken_row(score, value):
    near = vectors(3, D).float() / 8 + 4096
    far = near.clone()
    far[1, 0] = value
    found, expected = score(near, far)[:, [0, 2]].double(), -torch.cdist(near.double(), near.double())[:, [0, 2]]
    torch.testing.assert_close(found, -expected.square() if score is C.squared_euclidean else expected, rtol=1e-3, atol=1e-3)


# --- losses of a table --------------------------------------------------------------------------------------------

OF_TABLES: dict[str, Callable[[Scores], Tensor]] = {
    **{
        name: getattr(L, name)
        for name in (
            "batch_all", "batch_hard", "batch_hard_soft_margin", "debiased", "dv_bound", "hard_negative",
            "info_nce", "info_nce_bound", "mil_nce", "jsd_bound", "lifted_structure", "lifted_structure_generalized",
            "lifted_structure_smooth", "lmnn", "margin_based", "nwj_bound", "contrastive_pair", "contrastive_pair_squared", "ranking_hinge",
            "ranking_nce", "semi_hard_triplet", "sigmoid", "spreading", "supcon",
        )
    },
    "binary_nce": lambda S: L.binary_nce(S, K),
    "blend_losses": lambda S: L.blend_losses(L.info_nce(S), L.sigmoid(S), progress=0.5),
    "info_nce_from_statistics": lambda S: L.info_nce_from_statistics(S.all_lse, S.pos_sum, S.pos_count),
    "instance_nce": lambda S: L.instance_nce(S, 40, K, 1.0),
    "interpolated_bound": lambda S: L.interpolated_bound(S, 0.5),
    "estimate_log_partition": lambda S: L.estimate_log_partition(S, 40),
    "proto_nce": lambda S: L.proto_nce(S, a, [(weights, torch.full((4,), 0.2), y)]) if len(S) == N else L.info_nce(S),
    "sum_triplet_hinges": lambda S: L.sum_triplet_hinges(S)[0],
    "tuba_bound": lambda S: L.tuba_bound(S, 0.0),
    "select_positives": lambda S: L.info_nce(L.select_positives(S, L.mine_nearest_positives(S, 1))),
    "mine_nearest_positives": lambda S: L.info_nce(L.select_positives(S, L.mine_nearest_positives(S, 1))),
    "select_negatives": lambda S: L.info_nce(L.select_negatives(S, L.mine_hardest_negatives(S, 1))),
    "mine_hardest_negatives": lambda S: L.info_nce(L.select_negatives(S, L.mine_hardest_negatives(S, 1))),
    "mine_semi_hard_negatives": lambda S: L.info_nce(L.select_negatives(S, L.mine_semi_hard_negatives(S, 1))),
    "draw_distance_weighted_negatives": lambda S: L.info_nce(
        L.select_negatives(S, L.draw_distance_weighted_negatives(S, 1, rng_key, torch.arange(len(S))))
    ),
    "draw_random_negatives": lambda S: L.info_nce(
        L.select_negatives(S, L.draw_random_negatives(S, len(S.key), rng_key, torch.arange(len(S))))
    ),
    "add_negatives": lambda S: L.info_nce(L.add_negatives(S, mixed[: len(S)])),
}  # fmt: skip
"""One loss for each exported function of a table; selections of candidates by a loss on what they select."""
WITHOUT_OWN_POSITIVES = {"estimate_log_partition", "mine_nearest_positives", "select_positives"}
"""These do not look at the positives that are a row's own."""
SELECTIONS = {
    "mine_nearest_positives", "select_positives", "select_negatives", "mine_hardest_negatives", "mine_semi_hard_negatives",
    "draw_distance_weighted_negatives", "draw_random_negatives", "add_negatives",
}  # fmt: skip
"""These select among shared columns, which `listed` has none of."""


@functools.cache
def tables(score_name: str) -> list[tuple[str, Scores, Scores, Tensor]]:
    """Every builder with each of its arguments spoiled: name, clean table, spoiled table, and the rows that compare with NaN."""
    return list(_tables(SCORES[score_name]()))


def _tables(score: Score) -> Iterator[tuple[str, Scores, Scores, Tensor]]:
    all_rows, one = torch.ones(N, dtype=torch.bool), slots == BROKEN
    S = Scores.from_pairs(a, b, score)
    yield "pairs a", S, Scores.from_pairs(spoiled(a), b, score), one
    yield "pairs b", S, Scores.from_pairs(a, spoiled(b), score), all_rows
    yield "views", Scores.from_views(a, b, score=score), Scores.from_views(spoiled(a), b, score=score), torch.ones(2 * N, dtype=torch.bool)
    yield "labelled", Scores.from_labels(a, y, score), Scores.from_labels(spoiled(a), y, score), all_rows
    S = Scores.from_matched(a, b, bank, score)
    yield "matched q", S, Scores.from_matched(spoiled(a), b, bank, score), one
    yield "matched k", S, Scores.from_matched(a, spoiled(b), bank, score), one
    yield "matched against", S, Scores.from_matched(a, b, spoiled(bank), score), all_rows
    S = Scores.from_lists(of_pos, of_neg)
    yield "listed pos", S, Scores.from_lists(spoiled(of_pos), of_neg), one
    yield "listed neg", S, Scores.from_lists(of_pos, spoiled(of_neg)), one


def check(found: Tensor, clean: Tensor, rows: Tensor, where: str) -> None:
    assert not clean.isnan().any(), f"{where}: NaN without NaN"
    if found.ndim == 0 or found.shape != rows.shape:
        assert found.isnan().all(), f"{where}: {found} hides the NaN"
        return
    assert found[rows].isnan().all(), f"{where}: {found} hides the NaN of rows {rows.nonzero()[:, 0].tolist()}"
    torch.testing.assert_close(found[~rows], clean[~rows], msg=lambda m: f"{where}: a row that does not look at NaN changed: {m}")


@pytest.mark.parametrize("path", ["whole", "in blocks", "by the shortest way"])
@pytest.mark.parametrize("name", OF_TABLES)
def test_a_nan_row_reaches_every_loss_of_a_table(name, path, monkeypatch):
    loss, checked = OF_TABLES[name], 0
    if path == "by the shortest way":
        monkeypatch.setattr(shortcuts, "MIN_TABLE_ENTRIES", 0)
        monkeypatch.setattr(shortcuts, "MIN_SELF_TABLE_ENTRIES", 0)
    few = path != "whole" or name in SELECTIONS
    for score_name in ("cosine", "euclidean") if few else SCORES.keys() - {"build_learned_score", "SeparableCritic"}:
        expected: dict[Scores, Tensor] = {}
        for builder, clean, broken, rows in tables(score_name):
            if builder in ("matched k", "listed pos") and name in WITHOUT_OWN_POSITIVES:
                continue
            if builder.startswith("listed") and (name in SELECTIONS or score_name != "cosine"):
                continue
            block = 3 if path == "in blocks" else None
            try:
                expected[clean] = expected[clean] if clean in expected else loss(replace(clean, rows_per_block=block))
            except UsageError:  # not for this score, or not for this builder
                continue
            check(loss(replace(broken, rows_per_block=block)), expected[clean], rows, f"{name}, {score_name}, {builder}")
            checked += 1
    assert checked


# --- losses of vectors --------------------------------------------------------------------------------------------

logits, more, one_each, grades = vectors(N, 4), vectors(N, 4), vectors(N), vectors(N).sigmoid()
triples = torch.stack([slots, slots % 3, slots.flip(0)], 1)

OF_VECTORS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "align_uniform": (L.align_uniform, (a, b)),
    "alignment": (lambda x, z: torch.stack([L.alignment(x, z, alpha) for alpha in (1.0, 2.0, 3.0)]).sum(), (a, b)),
    "barlow_twins": (L.barlow_twins, (a, b)),
    "becker_hinton": (L.becker_hinton, (a, b)),
    "byol": (L.byol, (a, b)),
    "clip": (lambda x, z: L.clip(x, z, 14.3), (a, b)),
    "estimate_concentrations": (lambda z, p: L.estimate_concentrations(z, p, y), (a, weights)),
    "cpc": (L.cpc, (a, vectors(2, N, D), vectors(2, D, D))),
    "crd": (lambda s, t, m: L.crd(s, t, m, num_samples=40), (a, b, bank)),
    "cross_entropy": (lambda x: L.cross_entropy(x, y, label_smoothing=0.1), (logits,)),
    "cutoff_consistency": (lambda x, z: L.cutoff_consistency(x, z, y), (logits, more[None])),
    "deepcluster": (lambda x: L.deepcluster(x, y, torch.bincount(y)), (logits,)),
    "dpr": (L.dpr, (a, b, bank)),
    "energy_hinge": (L.energy_hinge, (one_each, of_neg)),
    "flow_nll": (L.flow_nll, (a, one_each)),
    "instance_softmax": (lambda z, m: L.instance_softmax(z, m, slots), (a, bank)),
    "js_divergence": (L.js_divergence, (logits, more)),
    "build_pair_scores": (lambda x, z: L.contrastive_pair(L.build_pair_scores(x, z,
    y > 1)) + L.contrastive_pair_squared(L.build_pair_scores(x, z, y > 1)), (a, b)),
    "local_aggregation": (lambda v, m: L.local_aggregation(v, m, torch.arange(K) < torch.ones(N, 1)), (a, many)),
    "local_global_info_nce": (L.local_global_info_nce, (a, many)),
    "build_log_ratio_scores": (lambda *x: L.ranking_nce(L.build_log_ratio_scores(*x)), (of_pos, of_neg, vectors(N, 2), vectors(N, K))),
    "logistic_pair": (lambda x: L.logistic_pair(x, y > 1), (one_each,)),
    "lre": (lambda r, s, e: L.lre(r, s, e, slots), (vectors(N, D, D), a, bank)),
    "mix_negatives": (lambda m: L.mix_negatives(m, slots[:, None].expand(-1, 3), 2, rng_key, slots).sum((1, 2)), (a,)),
    "mix_query": (lambda q, m: L.mix_query(q, m, slots[:, None].expand(-1, 3), 2, rng_key, slots).sum((1, 2)), (a, b)),
    "mlm": (lambda x: L.mlm(x[None], y[None], y[None] > 1), (logits,)),
    "amdim": (L.amdim, (a, many, many[:, :2])),
    "n_pair": (L.n_pair, (a, b)),
    "nce": (L.nce, (one_each, one_each + 1)),
    "negative_sampling": (L.negative_sampling, (a, b, many)),
    "norm_penalty": (L.norm_penalty, (a,)),
    "nt_logistic": (L.nt_logistic, (a, b)),
    "nt_margin": (L.nt_margin, (a, b)),
    "nt_xent": (L.nt_xent, (a, b)),
    "parametric_softmax": (lambda z, w: L.parametric_softmax(z, w, y), (a, weights)),
    "build_class_scores": (lambda z, w: L.info_nce(L.build_class_scores(z, w, y)), (a, weights)),
    "proto_nce": (lambda z, w, phi: L.proto_nce(Scores.from_pairs(a, b), z, [(w, phi, y)]), (a, weights, torch.full((4,), 0.2).double())),
    "proximal_penalty": (L.proximal_penalty, (a, b)),
    "quick_thought": (lambda f, g: L.quick_thought(f, g, slots // 4).sum(), (a, b)),
    "build_sbert_features": (lambda u, v: L.build_sbert_features(u, v).sum(1), (a, b)),
    "sbert_regression": (L.sbert_regression, (a, b, grades)),
    "sbert_softmax": (lambda u, v, w: L.sbert_softmax(u, v, w, y % 3), (a, b, vectors(3, 3 * D))),
    "simcse": (L.simcse, (a, b)),
    "simcse_supervised": (L.simcse_supervised, (a, b, c)),
    "sinkhorn": (lambda s: L.sinkhorn(s).sum(1), (logits,)),
    "soft_nearest_neighbors": (lambda z: L.soft_nearest_neighbors(z, y), (a,)),
    "swapped_prediction": (L.swapped_prediction, (logits, more.softmax(1))),
    "swav": (lambda x, z, p: L.swav([x, z], p), (a, b, weights)),
    "translation_hinge": (L.translation_hinge, (one_each, of_neg)),
    "triplet": (lambda *x: L.triplet(*x) + L.triplet(*x, score=C.euclidean) + L.triplet(*x, score=C.cosine), (a, b, c)),
    "triplet_ratio": (L.triplet_ratio, (a, b, c)),
    "uda": (lambda x, z: L.uda(x, z, confidence_threshold=0.5), (logits, more)),
    "uniformity": (L.uniformity, (a,)),
    "w_mse": (lambda x, z: L.w_mse(x, z, slots, rng_key), (a, b)),
    "whiten": (lambda z: L.whiten(z).sum(1), (a,)),
}  # fmt: skip
"""Each loss of vectors, and the tensors of which every one is spoiled in turn."""
NO_LOSSES = {"Clustering", "corrupt_triples", "build_hard_batch", "mean_over_rows_with_positives", "draw_positive_pairs"}
"""A type, a mean of losses, and functions that return whole numbers. (`hard_batch` selects by `hardest_negatives`.)"""


def test_every_loss_is_covered():
    assert set(OF_TABLES) | set(OF_VECTORS) | NO_LOSSES == set(L.__all__)


@pytest.mark.parametrize("name", OF_VECTORS)
def test_a_nan_row_reaches_every_loss_of_vectors(name):
    loss, given = OF_VECTORS[name]
    clean = loss(*given)
    assert not clean.isnan().any()
    for i, x in enumerate(given):
        row = min(BROKEN, len(x) - 1)
        found = loss(*(spoiled(z, row) if i == j else z for j, z in enumerate(given)))
        own = found if found.ndim == 0 or len(found) != len(x) else found[row]
        assert own.isnan().any(), f"argument {i}: {found} hides the NaN"
        known = ~found.isnan()
        torch.testing.assert_close(found[known], clean[known], msg=lambda m, i=i: f"argument {i}: another value changed: {m}")


def test_translations_over_tables_pass_nan_on():
    from nearfar.losses.sparse_translation_hinge import sparse_translation_hinge

    asked = (slots, slots % 4, slots.flip(0), slots[:, None].roll(1, 0), torch.ones(N, 1, dtype=torch.bool), 1.0)
    for p in (1, 2):
        assert sparse_translation_hinge(spoiled(a), weights, *asked, p)[BROKEN].isnan()
        assert sparse_translation_hinge(a, spoiled(weights), *asked, p)[BROKEN].isnan()
