"""A NaN is never hidden: one NaN row in what is measured gives a clear error or NaN, and never a number."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nearfar.evaluate
from nearfar.core import NearfarError, RandomKey
from nearfar.data.text.senteval import GradedPairs
from nearfar.evaluate import (
    Features,
    OnlineProbe,
    atari_probe,
    build_pixel_baselines,
    clustering,
    compare_features,
    correlation,
    find_nearest_neighbors,
    geometry,
    isotropy,
    knn,
    multilabel,
    probe,
    retrieval,
    robustness,
    sts,
)
from nearfar.evaluate import cross_modal as crossmodal
from nearfar.evaluate import few_label_probe as few
from nearfar.evaluate import health_measures as diagnosis
from nearfar.evaluate import input_checks as inputs
from nearfar.evaluate import link_prediction as linkpred
from nearfar.evaluate import projection_2d as projection
from nearfar.evaluate import senteval_transfer as transfer
from nearfar.evaluate import state_variables as variables
from nearfar.evaluate import (
    tied_scores as ties,
)
from nearfar.evaluate import verification as metric
from nearfar.evaluate import word_similarity as words  # fmt: skip
from nearfar.evaluate.feature_comparison import measure_geometry
from nearfar.evaluate.related_pairs import related_pair_auc
from nearfar.scores import euclidean

N, D, BROKEN = 24, 3, 17
draw = torch.Generator().manual_seed(0)
x, other = (torch.randn(N, D, generator=draw) for _ in range(2))
y, half, rng_key = torch.arange(N) % 3, torch.arange(N) % 2 == 0, RandomKey(0)
opposite = torch.arange(N)[:, None].expand(-1, 2)
coded = np.stack([np.arange(N) % 3, np.arange(N) % 2], 1)
texts = [f"text {i}" for i in range(N)]
number = {text: i for i, text in enumerate(texts)}
pictures = torch.zeros(N, 1, 8, 8, dtype=torch.uint8)
triples = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.long), torch.arange(N).flip(0)], 1)
sts_data = {"STS-B": {"all": GradedPairs(texts, texts[::-1], np.arange(N) % 5 / 5.0)}}


def encoder(z: Tensor) -> Callable[[list[str]], Tensor]:
    return lambda asked: z[torch.tensor([number[text] for text in asked])]


def learned(z: Tensor) -> float:
    return float(sum(OnlineProbe(D, 3).learn(z, y).values()))


MEASURES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "atari_probe.fit_atari_probes": (lambda a, b: atari_probe.fit_atari_probes(a, coded, np.arange(N) > 15, b, rng_key), (x, other)),
    "feature_comparison.compare_features": (
        lambda a, b: compare_features({"a": Features(a, b)}, y, y, rng_key=rng_key, draws=2, per_class=2), (x, other),
    ),
    "feature_comparison.build_pixel_baselines": (
        lambda a, b: compare_features(build_pixel_baselines(a, b), rng_key=rng_key), (x[:, None], other[:, None]),
    ),
    "clustering.cluster_scores": (lambda z: clustering.cluster_scores(z, y, rng_key=rng_key, restarts=1), (x,)),
    "correlation.spearman": (correlation.spearman, (x[:, 0], other[:, 0])),
    "cross_modal.recall_at": (lambda a, b: crossmodal.recall_at(a, b, opposite), (x, other)),
    "cross_modal.hits_at": (lambda a, b: crossmodal.hits_at(a, b, opposite), (x, other)),
    "cross_modal.encode_class_prompts": (
        lambda z: crossmodal.zero_shot_accuracy(x, y, crossmodal.encode_class_prompts(texts[:3], ["{}"], encoder(z.roll(9, 0)))), (x,),
    ),
    "cross_modal.zero_shot_accuracy": (lambda a, c: crossmodal.zero_shot_accuracy(a, y, c), (x, other)),
    "cross_modal.build_neighbor_caption_baseline": (
        lambda a, b: crossmodal.build_neighbor_caption_baseline(a, b, [[text] for text in texts], 2), (x, other),
    ),
    "health_measures.relative_effective_rank": (diagnosis.relative_effective_rank, (x,)),
    "health_measures.view_match_rate": (diagnosis.view_match_rate, (x, other)),
    "health_measures.effective_negative_share": (lambda a, b: diagnosis.effective_negative_share(a, b, 0.1), (x, other)),
    "health_measures.relative_distances": (lambda a, b: diagnosis.relative_distances(a, b, x[0]), (x, other)),
    "health_measures.count_near_duplicates": (lambda a, b: diagnosis.count_near_duplicates(a, b.split(20), x[0]), (x, other)),
    "few_labels.few_label_probe": (lambda a, b: few(a, y, b, y, 2, 1, rng_key=rng_key), (x, other)),
    "feature_comparison.measure_geometry": (lambda z: sum(measure_geometry(z, None, rng_key).values()), (x,)),
    "related_pairs.related_pair_auc": (lambda z: related_pair_auc(z, np.array([[0, 1], [2, 3]]), rng_key), (x,)),
    "geometry.effective_rank": (geometry.effective_rank, (x,)),
    "geometry.singular_values": (lambda z: geometry.singular_values(z).sum(), (x,)),
    "geometry.spectrum": (geometry.spectrum, (x,)),
    "geometry.spread": (geometry.spread, (x,)),
    "input_checks.check_features": (inputs.check_features, (x,)),
    "input_checks.measure_columns": (lambda z: sum(part.sum() for part in inputs.measure_columns(z)), (x,)),
    "input_checks.require_finite": (lambda z: inputs.require_finite(z, "features"), (x,)),
    "input_checks.standardize_columns": (lambda z: inputs.standardize_columns(z)[0].sum(), (x,)),
    "isotropy.measure_isotropy": (isotropy.measure_isotropy, (x,)),
    "isotropy.cosine_moments": (isotropy.cosine_moments, (x,)),
    "isotropy.partition_isotropy": (isotropy.partition_isotropy, (x,)),
    "knn.knn": (lambda a, b: knn(a, y, b, y, 3), (x, other)),
    "knn.find_nearest_neighbors": (lambda a, b: find_nearest_neighbors(a, b, 3), (x, other)),
    "link_prediction.evaluate_link_prediction": (
        lambda z: linkpred.evaluate_link_prediction(lambda asked, side: z @ z.T, triples, triples, N), (x,),
    ),
    "link_prediction.compute_filtered_ranks": (
        lambda z: linkpred.compute_filtered_ranks(lambda asked, side: z @ z.T, triples, triples, N), (x,),
    ),
    "verification.recall_at_1": (lambda z: metric.recall_at_1(z, y, euclidean) + metric.recall_at_1(z, y), (x,)),
    "verification.equal_error_rate": (lambda z: metric.equal_error_rate(z, half), (x[:, 0],)),
    "multilabel.multilabel_f1": (lambda z: multilabel.multilabel_f1(z, torch.stack([half, ~half], 1), rng_key=rng_key, draws=1), (x,)),
    "multilabel.fit_one_vs_rest": (lambda z: multilabel.fit_one_vs_rest(z, half[:, None]), (x,)),
    "multilabel.top_k_f1": (lambda z: multilabel.top_k_f1(z, torch.stack([half, ~half, half], 1)), (x,)),
    "online_probe.OnlineProbe": (learned, (x,)),
    "probe.linear_probe": (lambda a, b: probe.linear_probe(a, y, b, y), (x, other)),
    "probe.choose_penalty": (lambda z: probe.choose_penalty(z, y, rng_key, (1.0, 2.0)), (x,)),
    "probe.fit_linear": (lambda a, b: probe.fit_linear(a, y).predict(b), (x, other)),
    "projection_2d.project_to_2d": (lambda z: projection.project_to_2d(z, "pca", rng_key=rng_key), (x,)),
    "projection_2d.compute_principal_components": (lambda z: projection.compute_principal_components(z, 2), (x,)),
    "retrieval.paired_bootstrap": (lambda a, b: retrieval.paired_bootstrap(a, b, rng_key, 9), (x[:, 0], other[:, 0])),
    "robustness.probe_robustness": (
        lambda a, b: robustness.probe_robustness(lambda images: b, a, y, pictures, y, rng_key=rng_key, severities=(1,)), (x, other),
    ),
    "sts.measure_sts": (lambda z: sts.measure_sts(sts_data, lambda first, second: z), (x[:, 0].double(),)),
    "sts.build_cosine_scorer": (lambda z: sts.measure_sts(sts_data, sts.build_cosine_scorer(encoder(z))), (x,)),
    "senteval_transfer.cross_validate_task": (lambda z: transfer.cross_validate_task("MR", z, y, rng_key, 2, (1.0,)), (x,)),
    "senteval_transfer.cross_validate_penalty": (lambda z: transfer.cross_validate_penalty(z, y, (1.0,), rng_key, 2), (x,)),
    "senteval_transfer.build_pair_features": (lambda a, b: transfer.build_pair_features(a, b).sum(), (x, other)),
    "state_variables.evaluate_converged_probes": (
        lambda a, b: variables.evaluate_converged_probes(a, coded, b, coded, ("v", "w")), (x, other),
    ),
    "state_variables.evaluate_atari_probes": (
        lambda a, b: variables.evaluate_atari_probes(a, coded, np.arange(N) > 15, b, coded, ("v", "w"), rng_key), (x, other),
    ),
    "word_similarity.score_word_similarity": (
        lambda z: words.score_word_similarity(z, number, words.RatedWordPairs(((texts[0], texts[1]), (texts[2], texts[3])), (0.0,
        1.0))), (x,),
    ),
    "word_similarity.score_analogies": (lambda z: words.score_analogies(z, number, {"s": [tuple(texts[:4])]}), (x,)),
}  # fmt: skip
"""Each measure of numbers, and the tensors of which every one is spoiled in turn."""
WITHOUT_NUMBERS = {
    "clustering.compare_clusters", "clustering.count_overlaps", "robustness.measure_corruption_accuracy",
    "squad_answers.exact_match", "squad_answers.token_f1", "squad_answers.normalize_answer", "squad_answers.score_answers",
    "health_measures.in_batch_duplicate_rate", "health_measures.same_label_rate",
    "few_labels.draw_labeled_rows", "input_checks.check_label_matrix", "input_checks.check_labels",
    "lexical_baselines.ngram_jaccard", "lexical_baselines.build_random_word_encoder", "lexical_baselines.tf_idf_cosine",
    "link_prediction.build_frequency_baseline", "retrieval.average_precision", "retrieval.reciprocal_rank",
    "retrieval.summarize_retrieval", "retrieval.top_k_accuracy",
    "sts.read_sts_sets", "senteval_transfer.binary_f1", "senteval_transfer.assign_stratified_folds", "state_variables.entropy",
    "state_variables.select_informative",
    "state_variables.evaluate_majority_baseline", "word_similarity.read_analogies", "word_similarity.read_rated_pairs",
}  # fmt: skip
"""Functions of texts, labels, whole numbers or truth values."""
OF_MEASURED = {
    "sts.compare_sts": "of measurements that `measure_sts` made",
    "sts.render_sts": "likewise",
    "senteval_transfer.measure_transfer": "reads files; features go through `as_features` in `_table`, tested in test_evaluate_transfer.py",
    "tied_scores.count_above_and_tied": "rejects nothing itself: the callers, `hits_at` and `recall_at_1`, do",
    "tied_scores.compute_hit_probability": "of counts",
    "stored_results.read_stored_results": "reads a file",
    "stored_results.store_results": "writes what was measured",
}


OF_PIXELS = ("corruption_", "image_corruptions")
"""Modules of functions of uint8 images, by the beginning of their names."""


def value_or_error(measure: Callable[..., Any], *given: Tensor) -> Any:
    try:
        return measure(*given)
    except NearfarError as error:
        return error


def test_every_measure_is_covered():
    found = {"online_probe.OnlineProbe"}
    for info in pkgutil.iter_modules(nearfar.evaluate.__path__):
        if info.name.startswith(OF_PIXELS):
            continue
        module = importlib.import_module(f"nearfar.evaluate.{info.name}")
        functions = inspect.getmembers(module, inspect.isfunction)
        found |= {f"{info.name}.{name}" for name, f in functions if f.__module__ == module.__name__ and not name.startswith("_")}
    assert set(MEASURES) | WITHOUT_NUMBERS | set(OF_MEASURED) == found


@pytest.mark.parametrize("name", MEASURES)
def test_a_nan_row_gives_an_error_or_nan(name):
    measure, given = MEASURES[name]
    measure(*given)
    for i, z in enumerate(given):
        spoiled = z.clone()
        spoiled[
            (
                BROKEN if name not in ("word_similarity.score_word_similarity", "word_similarity.score_analogies") else 1,
                *(0,) * (z.ndim - 1),
            )
        ] = torch.nan
        found = value_or_error(measure, *(spoiled if i == j else other for j, other in enumerate(given)))
        if isinstance(found, NearfarError):
            assert "NaN" in str(found)
        else:
            assert isinstance(found, (float, Tensor)), f"argument {i}: {found} hides the NaN"
            assert math.isnan(float(found)), f"argument {i}: {found} hides the NaN"


def test_the_error_names_the_argument_and_the_row():
    spoiled = x.clone()
    spoiled[BROKEN, 1] = torch.nan
    with pytest.raises(NearfarError, match="test features: 1 of 24 rows hold NaN or infinity, the first is row 17"):
        knn(x, y, spoiled, y)


def test_recall_at_1_is_the_expectation_over_ties():
    alike = torch.ones(9, 2)
    assert metric.recall_at_1(alike, torch.arange(9) // 3, euclidean) == pytest.approx(2 / 8)  # 2 of 8 others are right
    two = torch.tensor([[0.0], [0.0], [0.0], [5.0], [5.0]])
    # the nearest are: of row 0 rows 1, 2 (one right), of row 1 rows 0, 2 (one right), of row 3 row 4 (wrong), of row 4 row 3 (wrong)
    assert metric.recall_at_1(two, torch.tensor([0, 0, 1, 1, 2]), euclidean) == pytest.approx((0.5 + 0.5 + 0 + 0) / 4)
    apart = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.arange(40) % 4
    right = torch.tensor([(i, j) for i in range(40) for j in range(40) if i != j and labels[i] == labels[j]])
    scores = euclidean(apart, apart).fill_diagonal_(-torch.inf)
    assert metric.recall_at_1(apart, labels, euclidean) == float(
        ties.compute_hit_probability(ties.count_above_and_tied(scores, right), 1).mean()
    )
    naive = sum(int(labels[scores[i].argmax()] == labels[i]) for i in range(40)) / 40
    assert metric.recall_at_1(apart, labels, euclidean) == pytest.approx(naive)
