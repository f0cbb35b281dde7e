"""Wrong arguments of losses, scores and measures: a ValueError that names the argument, for every exported loss."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.miners import BatchHardMiner
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from nearfar import evaluate, losses
from nearfar.core import RandomKey, UsageError
from nearfar.evaluate.correlation import spearman
from nearfar.evaluate.verification import equal_error_rate, recall_at_1
from nearfar.index.bm25 import build_bm25
from nearfar.scores import Scores, cosine, dot, euclidean, squared_euclidean

sys.path.append(str(Path(__file__).resolve().parent.parent / "docs"))
seen = importlib.import_module("losses_seen")

NOTHING = ""
"""Takes score tables, integers or settings alone: tables are checked where they are built."""
CHECKED = {
    "add_negatives": NOTHING,
    "align_uniform": "a b",
    "alignment": "a b > exponent",
    "amdim": "global_features > temperature",
    "barlow_twins": "z0 z1",
    "batch_all": NOTHING,
    "batch_hard": NOTHING,
    "batch_hard_soft_margin": NOTHING,
    "becker_hinton": "a b",
    "binary_nce": NOTHING,
    "blend_losses": NOTHING,
    "build_class_scores": "z class_vectors",
    "build_hard_batch": "z",
    "build_log_ratio_scores": "pos_scores neg_scores",
    "build_pair_scores": "a b is_positive",
    "build_sbert_features": "u v",
    "byol": "prediction target",
    "clip": "a b > scale",
    "contrastive_pair": NOTHING,
    "contrastive_pair_squared": NOTHING,
    "corrupt_triples": NOTHING,
    "cpc": "context future",
    "crd": "student teacher negatives > temperature",
    "cross_entropy": "logits",
    "cutoff_consistency": "logits",
    "debiased": NOTHING,
    "deepcluster": "logits",
    "dpr": "question passage",
    "draw_distance_weighted_negatives": NOTHING,
    "draw_positive_pairs": NOTHING,
    "draw_random_negatives": NOTHING,
    "dv_bound": NOTHING,
    "energy_hinge": "pos_energies neg_energies",
    "estimate_concentrations": "z > temperature",
    "estimate_log_partition": NOTHING,
    "flow_nll": "z log_det",
    "hard_negative": NOTHING,
    "info_nce": NOTHING,
    "info_nce_bound": NOTHING,
    "info_nce_from_statistics": NOTHING,
    "instance_nce": NOTHING,
    "instance_softmax": "z bank > temperature",
    "interpolated_bound": NOTHING,
    "js_divergence": "logits",
    "jsd_bound": NOTHING,
    "lifted_structure": NOTHING,
    "lifted_structure_generalized": NOTHING,
    "lifted_structure_smooth": NOTHING,
    "lmnn": NOTHING,
    "local_aggregation": "z background_neighbors is_close > temperature",
    "local_global_info_nce": "global_features local_features > temperature",
    "logistic_pair": "scores is_positive",
    "lre": "relation subject",
    "margin_based": NOTHING,
    "mean_over_rows_with_positives": NOTHING,
    "mil_nce": NOTHING,
    "mine_hardest_negatives": NOTHING,
    "mine_nearest_positives": NOTHING,
    "mine_semi_hard_negatives": NOTHING,
    "mix_negatives": NOTHING,
    "mix_query": NOTHING,
    "mlm": "logits is_masked",
    "n_pair": "a b",
    "nce": "data noise",
    "negative_sampling": "center context noise",
    "norm_penalty": "z",
    "nt_logistic": "z0 z1 > temperature",
    "nt_margin": "z0 z1",
    "nt_xent": "z0 z1 > temperature",
    "nwj_bound": NOTHING,
    "parametric_softmax": "z class_vectors",
    "proto_nce": "z",
    "proximal_penalty": "current previous",
    "quick_thought": "queries candidates",
    "ranking_hinge": NOTHING,
    "ranking_nce": NOTHING,
    "sbert_regression": "u v",
    "sbert_softmax": "u v",
    "select_negatives": NOTHING,
    "select_positives": NOTHING,
    "semi_hard_triplet": NOTHING,
    "sigmoid": NOTHING,
    "simcse": "z0 z1 > temperature",
    "simcse_supervised": "anchor positive negative > temperature",
    "sinkhorn": "scores > regularization",
    "soft_nearest_neighbors": "z > temperature",
    "spreading": NOTHING,
    "sum_triplet_hinges": NOTHING,
    "supcon": NOTHING,
    "swapped_prediction": "scores codes > temperature",
    "swav": "views > temperature",
    "translation_hinge": "pos_distances neg_distances",
    "triplet": "anchor positive negative",
    "triplet_ratio": "anchor positive negative",
    "tuba_bound": NOTHING,
    "uda": "logits augmented_logits > temperature",
    "uniformity": "z > kernel_coefficient",
    "w_mse": "z0 z1",
    "whiten": "z",
}
"""For each exported function the arguments that are tensors of rows (or truth values), then those that must be positive."""
FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda x: x[:0],
    "of whole numbers": lambda x: x.detach().long() if x.is_floating_point() else x.double(),
    "flat": lambda x: x.reshape(-1)[: len(x)] if x.dim() > 1 else x.detach()[:, None].long(),
    "of another length": lambda x: x[:-1],
}
ALLOWED = {
    *((name, "logits", "empty") for name in ("cross_entropy", "mlm")),
    *((name, argument, "of another length") for name, argument in [
        ("nce", "data"), ("nce", "noise"), ("build_class_scores", "class_vectors"), ("parametric_softmax", "class_vectors"),
        ("instance_softmax", "bank"), ("crd", "negatives"), ("cpc", "future"), ("uniformity", "z"), ("norm_penalty", "z"), ("whiten", "z"),
        ("sinkhorn", "scores")]),
    *((name, argument, "flat") for name, argument in [("build_log_ratio_scores", "pos_scores"), ("build_log_ratio_scores", "neg_scores")]),
}  # fmt: skip
"""Not wrong: losses of logits are 0 if no label is known, and sides of different lengths."""


@pytest.fixture(autouse=True)
def as_users_call_it():
    """Run without the type checker of the tests, which users do not have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def functions() -> list[str]:
    return [name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))]


def arguments_of(name: str) -> tuple[Callable[..., Any], inspect.BoundArguments]:
    function = getattr(losses, name)
    bound = inspect.signature(function).bind(*seen.examples(function, cosine))
    bound.apply_defaults()
    return function, bound


def test_every_exported_loss_is_in_the_table():
    assert sorted(CHECKED) == sorted(functions())


@pytest.mark.parametrize("name", [name for name, checked in CHECKED.items() if checked])
def test_wrong_arguments_are_named(name):
    rows, _, positive = CHECKED[name].partition(" > ")
    for argument in rows.split():
        for fault, spoil in FAULTS.items():
            if (name, argument, fault) in ALLOWED:
                continue
            function, bound = arguments_of(name)
            given = bound.arguments[argument]
            bound.arguments[argument] = spoil(given) if isinstance(given, Tensor) else (spoil(given[0]), *given[1:])
            named = [*rows.split(), "labels"] if fault in ("empty", "of another length") else [argument]
            with pytest.raises(ValueError, match=rf"\b({'|'.join(named)})\b"):
                print(name, argument, fault, function(*bound.args, **bound.kwargs))
    for argument in positive.split():
        for value in (0, -1, math.nan, torch.tensor(-0.5)):
            function, bound = arguments_of(name)
            bound.arguments[argument] = value
            with pytest.raises(ValueError, match=rf"\b{argument}\b.*(positive|greater)"):
                print(name, argument, value, function(*bound.args, **bound.kwargs))


A, B, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.randn(6, 3), torch.arange(6) % 2
NAN_LABELS = torch.tensor([0.0, 1.0, math.nan, 0.0, 1.0, 0.0])
TABLES = {
    "from_pairs": (lambda a: Scores.from_pairs(a, B), "a"),
    "from_pairs, columns": (lambda b: Scores.from_pairs(A[:1], b), "b"),
    "from_views": (lambda a: Scores.from_views(a, a), "view"),
    "from_labels": (lambda z: Scores.from_labels(z, Y[: len(z)]), "z"),
    "from_matched": (lambda q: Scores.from_matched(q, A, B), "q"),
    "from_lists": (lambda positives: Scores.from_lists(positives, A), "positives"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_built_of_rows_of_floats(name):
    build, argument = TABLES[name]
    for wrong in (A[:0], A.long(), A[0]):
        with pytest.raises(ValueError, match=f"`{argument}` must"):
            build(wrong)
    with pytest.raises(ValueError, match="tensor"):
        build(A.tolist())  # type: ignore[arg-type]


def test_paired_losses_do_not_broadcast():
    for loss in (losses.byol, losses.alignment, losses.barlow_twins, losses.proximal_penalty):
        with pytest.raises(ValueError, match="same number of rows, got 1 and 6"):
            loss(A[:1], B)
        with pytest.raises(ValueError, match="same shape"):
            loss(A[:, :1], B)
    with pytest.raises(ValueError, match="`a` and `b` must have the same number of rows, got 1 and 5"):
        losses.clip(A[:1], B[:5], 5.0)


@pytest.mark.parametrize("temperature", [0, -1, 0.0, math.nan, torch.tensor(-2.0)])
def test_a_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="`temperature` must be positive, got"):
        Scores.from_pairs(A, B) / temperature


def test_a_learned_temperature_is_not_read():
    tau = torch.tensor(-0.5, requires_grad=True)
    assert (Scores.from_pairs(A, B) / tau).scale is not None
    with torch.device("meta"):
        assert (Scores.from_pairs(A, B) / torch.ones(())).scale.is_meta  # reading it would be an error, as it would wait on a GPU


@pytest.mark.parametrize("score", [cosine, euclidean])
def test_subtracting_shifts_and_negating_turns_the_table(score):
    S = Scores.from_pairs(A, B, score=score) * 2 + 0.5
    torch.testing.assert_close((S - 0.3).to_dense(), S.to_dense() - 0.3)
    torch.testing.assert_close((-S).to_dense(), -S.to_dense())
    torch.testing.assert_close((-S).neg_lse, (-S.to_dense()).masked_fill(~S.negative_mask, -math.inf).logsumexp(1))
    turned = -S
    torch.testing.assert_close((-turned).all_lse, S.all_lse)


@pytest.mark.parametrize("change", [lambda S: S * 3, lambda S: S * -3, lambda S: -S - 1, lambda S: S * 0, lambda S: (S + 2) / 0.1 - 5])
def test_lowest_is_a_lower_bound_whatever_the_scale(change):
    for score in (cosine, dot):
        S = change(Scores.from_pairs(A, B, score=score))
        assert float(S.to_dense().min()) >= S.lowest
    assert (Scores.from_pairs(A, B) * 3 - 1).lowest == -4


def test_losses_that_need_a_lower_bound_refuse_a_negative_scale():
    for loss in (losses.debiased, losses.hard_negative):
        with pytest.raises(ValueError, match="positive scale"):
            loss(-Scores.from_views(A, B))


def test_labels_must_be_whole_numbers():
    calls = {
        "from_labels: labels": lambda: Scores.from_labels(A, NAN_LABELS),
        "is_positive": lambda: losses.build_pair_scores(A, B, Y.float()),
        "training labels": lambda: evaluate.knn(A, NAN_LABELS, B, Y),
        "test labels": lambda: evaluate.linear_probe(A, Y, B, NAN_LABELS.numpy()),
        "labels": lambda: evaluate.few_label_probe(A, NAN_LABELS, B, Y, rng_key=RandomKey(0)),
        "`y`": lambda: evaluate.OnlineProbe(3, 2).learn(A, NAN_LABELS),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name}.*(whole numbers|boolean tensor)"):
            call()


def test_measures_name_wrong_arguments():
    calls = {
        "test features": lambda: evaluate.knn(A, Y, B[:0], Y[:0]),
        "training labels: 6 samples need 6": lambda: evaluate.knn(A, Y[:5], B, Y),
        "`k` must be at least 1, got 0": lambda: evaluate.knn(A, Y, B, Y, k=0),
        "`temperature` must be positive, got -1": lambda: evaluate.knn(A, Y, B, Y, temperature=-1),
        "`C` must be positive": lambda: evaluate.linear_probe(A, Y, B, Y, C=0),
        "`draws` must be at least 1": lambda: evaluate.few_label_probe(A, Y, B, Y, draws=0, rng_key=RandomKey(0)),
        "`x` must not be empty": lambda: evaluate.effective_rank(A[:0]),
        "`x` must be a floating-point": lambda: evaluate.spread(A.long()),
        "`x` must have the shape": lambda: evaluate.spectrum(A[0]),
        "`b` must have the same number": lambda: spearman(A[:, 0], B[:5, 0]),
        "`same_class` must be": lambda: equal_error_rate(A[:, 0], Y.float()),
        "labels": lambda: recall_at_1(A, NAN_LABELS),
    }
    for text, call in calls.items():
        with pytest.raises(ValueError, match=text):
            call()


def test_broken_features_are_not_a_wrong_request():
    """A command ends with exit code 1 where a run has diverged: 2 is for mistakes in the command."""
    with pytest.raises(ValueError, match="NaN or infinity") as refused:
        evaluate.knn(A * math.nan, Y, B, Y)
    assert refused.value.exit_code == 1  # type: ignore[attr-defined]


def test_bm25_needs_at_least_one_passage_a_question():
    index = build_bm25(["a red fox", "a brown bear"])
    for k in (0, -3):
        with pytest.raises(UsageError, match=f"`k` must be at least 1, got {k}"):
            index.search(["fox"], k=k)


def test_an_empty_table_has_empty_statistics():
    S = Scores.from_labels(A, Y)
    nobody = S.query[:0]
    empty = replace(S, query=nobody, key=nobody, row_id=Y[:0], col_id=Y[:0])
    for loss in (losses.info_nce, losses.mil_nce, losses.sigmoid, losses.batch_hard):
        assert loss(empty).shape == (0,)
    assert losses.mean_over_rows_with_positives(losses.info_nce(empty), empty) == 0
    logits = torch.zeros(0, 3, requires_grad=True)
    assert losses.cross_entropy(logits, Y[:0]) == 0


def test_means_over_rows_with_positives_are_those_of_pytorch_metric_learning():
    z, y, tau = A.double(), torch.tensor([0, 0, 1, 2, 0, 3]), 0.3
    S, distances = Scores.from_labels(z, y) / tau, Scores.from_labels(z, y, score=squared_euclidean) / tau
    mean = losses.mean_over_rows_with_positives
    assert float(mean(losses.supcon(S), S)) == pytest.approx(float(pml.SupConLoss(tau)(z, y)))
    neighbours = pml.NCALoss(1 / tau, distance=LpDistance(normalize_embeddings=False, power=2))
    assert float(mean(losses.mil_nce(distances), distances)) == pytest.approx(float(neighbours(z, y)))
    near = Scores.from_labels(z, y, score=euclidean)
    hardest = pml.TripletMarginLoss(9.0, distance=LpDistance(normalize_embeddings=False), reducer=MeanReducer())
    mined = BatchHardMiner(distance=LpDistance(normalize_embeddings=False))(z, y)
    assert float(mean(losses.batch_hard(near, 9.0), near)) == pytest.approx(float(hardest(z, y, mined)))
    assert float(losses.supcon(S).mean()) < 0.6 * float(mean(losses.supcon(S), S))
    alone = Scores.from_labels(z, torch.arange(6))
    assert mean(losses.supcon(alone), alone) == 0
