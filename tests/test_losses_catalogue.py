"""Every score, loss and selection of negatives that the literature names, by its usual name: one expression each, computed once.

What each is worth is tested elsewhere, against loops; here is only that each is there and gives finite numbers, with a gradient
where it is to be learned from.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nearfar import losses as L
from nearfar import scores as C
from nearfar.core import RandomKey
from nearfar.scores import Scores, dot, euclidean, squared_euclidean

N, D, K = 12, 6, 5
draw = torch.Generator().manual_seed(0)


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


a, b, c = (vectors(N, D).requires_grad_() for _ in range(3))
bank, many, logits, more = vectors(40, D), vectors(N, K, D), vectors(N, 4), vectors(N, 4)
y, slots, rng_key = torch.arange(N) % 4, torch.arange(N), RandomKey(0)
s, weights = vectors(N), vectors(4, D)
critic = {"concat": C.ConcatCritic(D, D, 8).double(), "cross": C.CrossCritic(D, 2, 1).double()}


def queue() -> C.Scores:
    return Scores.from_matched(a, b, negatives=bank) / 0.1


def classes() -> C.Scores:
    return Scores.from_labels(a, y, score=euclidean)


ROWS = {
    "score-l1": lambda: C.manhattan(a, b),
    "score-l2": lambda: euclidean(a, b),
    "score-dot": lambda: dot(a, b),
    "score-norm-penalty": lambda: dot(a, b).sum() + L.norm_penalty(a).sum(),
    "score-cosine": lambda: C.cosine(a, b),
    "score-bilinear": lambda: C.bilinear(vectors(D, D))(a, b),
    "score-learned-mlp": lambda: C.build_learned_score(critic["concat"])(a, b),
    "score-cross-transformer": lambda: C.build_learned_score(critic["cross"])(a[:, None], b[:, None]),
    "score-gaussian-rbf": lambda: C.rbf()(a, b),
    "score-asymmetric": lambda: C.order_embedding(D)(a, b),
    "score-riesz": lambda: C.riesz()(a, b),
    "loss-pair-blog": lambda: L.contrastive_pair(L.build_pair_scores(a, b, y > 1)),
    "loss-pair-survey": lambda: L.contrastive_pair_squared(L.build_pair_scores(a, b, y > 1)),
    "loss-triplet": lambda: L.triplet(a, b, c, score=squared_euclidean),
    "loss-triplet-unsquared": lambda: L.triplet(a, b, c, score=euclidean),
    "loss-triplet-cosine": lambda: L.triplet(a, b, c, score=C.cosine),
    "loss-triplet-semi-hard": lambda: L.semi_hard_triplet(classes(), 5.0),
    "loss-triplet-batch-hard": lambda: L.batch_hard(classes()),
    "loss-lifted": lambda: L.lifted_structure(classes()),
    "loss-lifted-smooth": lambda: L.lifted_structure_smooth(classes()),
    "loss-lifted-generalised": lambda: L.lifted_structure_generalized(classes()),
    "loss-margin-distance-weighted": lambda: L.margin_based(
        L.select_negatives(
            classes(), L.draw_distance_weighted_negatives(Scores.from_labels(F.normalize(a), y, score=euclidean), 3, rng_key, slots)
        )
    ),
    "loss-hinge-transe": lambda: L.translation_hinge(a.sum(1), many.sum(2) + b.sum(1, keepdim=True)),
    "loss-hinge-cswm": lambda: L.energy_hinge(a.sum(1), many.sum(2) + b.sum(1, keepdim=True)),
    "loss-euclid-linear": lambda: L.cross_entropy(torch.stack([euclidean.score_pairs(a, b), -euclidean.score_pairs(a, b)], 1), y % 2),
    "loss-parametric-softmax": lambda: L.parametric_softmax(a, weights, y),
    "loss-nonparametric-softmax": lambda: L.instance_softmax(a, bank, slots),
    "loss-nce": lambda: L.nce(a.sum(1), b.sum(1)),
    "loss-nce-binary": lambda: L.binary_nce(Scores.from_pairs(a, b), noise_ratio=N - 1),
    "loss-nce-global": lambda: L.ranking_nce(Scores.from_pairs(a, b)),
    "loss-neg": lambda: L.negative_sampling(a, b, many),
    "loss-logistic-pair": lambda: L.logistic_pair(a.sum(1), y > 1),
    "loss-nt-logistic": lambda: L.nt_logistic(a, b),
    "loss-margin-simclr": lambda: L.nt_margin(a, b),
    "loss-npair": lambda: L.n_pair(a, b),
    "loss-infonce": lambda: L.info_nce(Scores.from_pairs(a, b, score=dot)),
    "loss-infonce-cpc": lambda: L.cpc(a, vectors(2, N, D), vectors(2, D, D)),
    "loss-nt-xent": lambda: L.nt_xent(a, b),
    "loss-contrastive-wang-isola": lambda: L.info_nce(Scores.from_matched(a, b, negatives=bank) / 0.5),
    "loss-soft-nn": lambda: L.soft_nearest_neighbors(a, y),
    "loss-supcon": lambda: L.supcon(Scores.from_labels(a, y) / 0.1),
    "loss-multi-positive-infonce": lambda: L.mil_nce(Scores.from_views(a, b, c) / 0.1),
    "loss-moco": lambda: L.info_nce(queue()),
    "loss-instance-nce-proximal": lambda: L.instance_nce(queue(), 40, 40, L.estimate_log_partition(queue(), 40)) + L.proximal_penalty(a, b),
    "loss-debiased": lambda: L.debiased(Scores.from_views(a, b) / 0.5),
    "loss-hard-negative": lambda: L.hard_negative(Scores.from_views(a, b) / 0.5),
    "loss-clip-symmetric": lambda: L.clip(a, b, 14.3),
    "loss-simcse-unsup": lambda: L.simcse(a, b),
    "loss-simcse-sup": lambda: L.simcse_supervised(a, b, c),
    "loss-dpr-nll": lambda: L.dpr(a, b, bank),
    "loss-qt": lambda: L.quick_thought(a, b, slots // 4),
    "loss-crd": lambda: L.crd(a, b, bank, num_samples=40),
    "loss-local-aggregation": lambda: L.local_aggregation(a, many, torch.arange(K) < torch.ones(N, 1) * 2),
    "loss-protonce": lambda: L.proto_nce(queue(), a, [(weights, torch.full((4,), 0.2, dtype=torch.float64), y)]),
    "loss-mi-infonce-bound": lambda: L.info_nce_bound(Scores.from_pairs(a, b)),
    "loss-mi-jsd": lambda: L.jsd_bound(Scores.from_pairs(a, b)),
    "loss-mi-dv": lambda: L.dv_bound(Scores.from_pairs(a, b)),
    "loss-mi-multisample": lambda: L.interpolated_bound(Scores.from_pairs(a, b), 0.5),
    "loss-mi-becker-hinton": lambda: L.becker_hinton(a, b),
    "loss-mi-multiscale": lambda: L.amdim(a, many, many[:, :2]),
    "loss-align": lambda: L.alignment(a, b),
    "loss-uniform": lambda: L.uniformity(a),
    "loss-align-uniform": lambda: L.align_uniform(a, b),
    "loss-barlow": lambda: L.barlow_twins(a, b),
    "loss-byol-mse": lambda: L.byol(a, b),
    "loss-wmse": lambda: L.w_mse(a, b, slots, rng_key),
    "loss-swav-swapped": lambda: L.swav([F.normalize(a), F.normalize(b)], F.normalize(weights)),
    "loss-deepcluster-ce": lambda: L.deepcluster(a @ weights.T, y, torch.bincount(y)),
    "loss-cutoff-kl": lambda: L.cutoff_consistency(a @ weights.T, more[None], y),
    "loss-uda-kl": lambda: L.uda(logits, a @ weights.T),
    "loss-mlm-aux": lambda: L.mlm((a @ weights.T)[None], y[None], y[None] > 1),
    "loss-flow-mle": lambda: L.flow_nll(a, b.sum(1)),
    "loss-sbert-softmax": lambda: L.sbert_softmax(a, b, vectors(3, 3 * D), y % 3),
    "loss-sbert-regression": lambda: L.sbert_regression(a, b, s.sigmoid()),
    "loss-cross-entropy": lambda: L.cross_entropy(a @ weights.T, y, label_smoothing=0.1),
    "loss-lre-probabilistic": lambda: L.lre(vectors(N, D, D), a, bank, slots),
    "loss-mixed-hybrid": lambda: L.blend_losses(
        L.info_nce(Scores.from_pairs(a, b)), L.hard_negative(Scores.from_pairs(a, b)), progress=0.5
    ),
    "loss-sigmoid": lambda: L.sigmoid(Scores.from_pairs(a, b) * 10 + -10),
}
NEGATIVES = {
    "neg-in-batch": lambda: L.info_nce(Scores.from_pairs(a, b)),
    "neg-memory": lambda: L.info_nce(queue()),
    "neg-semi-hard": lambda: L.info_nce(L.select_negatives(classes(), L.mine_semi_hard_negatives(classes(), 2))),
    "neg-hard-mining": lambda: L.info_nce(L.select_negatives(classes(), L.mine_hardest_negatives(classes(), 2))),
    "neg-batch-mining-lifted": lambda: a[L.build_hard_batch(a.detach(), y, L.draw_positive_pairs(y, rng_key, torch.arange(2)), 8)],
    "neg-distance-weighted": lambda: ROWS["loss-margin-distance-weighted"](),
    "neg-debiasing": lambda: L.debiased(Scores.from_views(a, b) / 0.5),
    "neg-mochi": lambda: L.info_nce(
        L.add_negatives(queue(), L.mix_negatives(bank, L.mine_hardest_negatives(queue(), 8), 4, rng_key, slots))
    ),
    "neg-corrupt-object": lambda: L.translation_hinge(*_corrupted()),
    "neg-nli-contradiction": lambda: L.simcse_supervised(a, b, c),
    "neg-unigram": lambda: L.negative_sampling(a, b, many),
}


def _corrupted():
    triples = torch.stack([slots, slots % 3, slots.flip(0)], 1)
    wrong = L.corrupt_triples(triples, N, 4, rng_key, slots)
    score = lambda t: -(a[t[..., 0]] + b[t[..., 1]] - a[t[..., 2]]).square().sum(-1)
    return score(triples), score(wrong)


@pytest.mark.parametrize("name", ROWS | NEGATIVES)
def test_it_is_there_and_finite_and_can_be_learned_from(name):
    found = (ROWS | NEGATIVES)[name]()
    assert torch.isfinite(found).all()
    assert found.numel() > 0
    grads = torch.autograd.grad(found.sum(), (a, b, c), allow_unused=True)
    assert any(g is not None and torch.isfinite(g).all() and g.abs().max() > 0 for g in grads)


def test_how_many_there_are():
    assert sum(name.startswith("score-") for name in ROWS) == 11
    assert sum(name.startswith("loss-") for name in ROWS) == 66 + 1  # and the sigmoid loss
    assert Scores.from_lists(s[:, None], many.sum(2)).stats(C.Scores.all_count)[0].eq(1 + K).all()
