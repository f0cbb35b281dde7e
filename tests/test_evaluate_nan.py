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
from nearfar.core import Key, NearfarError
from nearfar.data.senteval import GradedPairs
from nearfar.evaluate import (
    Features,
    OnlineProbe,
    atari_probe,
    compare,
    correlation,
    crossmodal,
    diagnosis,
    few,
    geometry,
    inputs,
    isotropy,
    knn,
    linkpred,
    metric,
    multilabel,
    nearest,
    probe,
    projection,
    raw_pixels,
    retrieval,
    sts,
    ties,
    transfer,
    variables,
    words,
)  # fmt: skip
from nearfar.scores import euclidean

N, D, BROKEN = 24, 3, 17
draw = torch.Generator().manual_seed(0)
x, other = (torch.randn(N, D, generator=draw) for _ in range(2))
y, half, key = torch.arange(N) % 3, torch.arange(N) % 2 == 0, Key(0)
opposite = torch.arange(N)[:, None].expand(-1, 2)
coded = np.stack([np.arange(N) % 3, np.arange(N) % 2], 1)
texts = [f"text {i}" for i in range(N)]
number = {text: i for i, text in enumerate(texts)}
triples = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.long), torch.arange(N).flip(0)], 1)
sts_data = {"STS-B": {"all": GradedPairs(texts, texts[::-1], np.arange(N) % 5 / 5.0)}}


def encoder(z: Tensor) -> Callable[[list[str]], Tensor]:
    return lambda asked: z[torch.tensor([number[text] for text in asked])]


def learned(z: Tensor) -> float:
    return float(sum(OnlineProbe(D, 3).learn(z, y).values()))


MEASURES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "atari_probe.fit_probes": (lambda a, b: atari_probe.fit_probes(a, coded, np.arange(N) > 15, b, key), (x, other)),
    "compare.compare": (lambda a, b: compare({"a": Features(a, b)}, y, y, key=key, draws=2, per_class=2), (x, other)),
    "compare.raw_pixels": (lambda a, b: compare(raw_pixels(a, b), key=key), (x[:, None], other[:, None])),
    "correlation.spearman": (correlation.spearman, (x[:, 0], other[:, 0])),
    "crossmodal.recall_at": (lambda a, b: crossmodal.recall_at(a, b, opposite), (x, other)),
    "crossmodal.hits_at": (lambda a, b: crossmodal.hits_at(a, b, opposite), (x, other)),
    "crossmodal.class_vectors": (
        lambda z: crossmodal.zero_shot(x, y, crossmodal.class_vectors(texts[:3], ["{}"], encoder(z.roll(9, 0)))), (x,),
    ),
    "crossmodal.zero_shot": (lambda a, c: crossmodal.zero_shot(a, y, c), (x, other)),
    "crossmodal.borrowed_words": (lambda a, b: crossmodal.borrowed_words(a, b, [[text] for text in texts], 2), (x, other)),
    "diagnosis.rank_share": (diagnosis.rank_share, (x,)),
    "diagnosis.match_rate": (diagnosis.match_rate, (x, other)),
    "diagnosis.negatives_in_use": (lambda a, b: diagnosis.negatives_in_use(a, b, 0.1), (x, other)),
    "diagnosis.relative_distances": (lambda a, b: diagnosis.relative_distances(a, b, x[0]), (x, other)),
    "diagnosis.twin_counts": (lambda a, b: diagnosis.twin_counts(a, b.split(20), x[0]), (x, other)),
    "few.few_labels": (lambda a, b: few.few_labels(a, y, b, y, 2, 1, key=key), (x, other)),
    "geometry.effective_rank": (geometry.effective_rank, (x,)),
    "geometry.singular_values": (lambda z: geometry.singular_values(z).sum(), (x,)),
    "geometry.spectrum": (geometry.spectrum, (x,)),
    "geometry.spread": (geometry.spread, (x,)),
    "inputs.as_features": (inputs.as_features, (x,)),
    "inputs.require_finite": (lambda z: inputs.require_finite(z, "features"), (x,)),
    "inputs.standardised": (lambda z: inputs.standardised(z)[0].sum(), (x,)),
    "isotropy.isotropy": (isotropy.isotropy, (x,)),
    "isotropy.cosine_moments": (isotropy.cosine_moments, (x,)),
    "isotropy.partition_isotropy": (isotropy.partition_isotropy, (x,)),
    "knn.knn": (lambda a, b: knn(a, y, b, y, 3), (x, other)),
    "knn.nearest": (lambda a, b: nearest(a, b, 3), (x, other)),
    "linkpred.link_prediction": (lambda z: linkpred.link_prediction(lambda asked, side: z @ z.T, triples, triples, N), (x,)),
    "linkpred.filtered_ranks": (lambda z: linkpred.filtered_ranks(lambda asked, side: z @ z.T, triples, triples, N), (x,)),
    "metric.recall_at_1": (lambda z: metric.recall_at_1(z, y, euclidean) + metric.recall_at_1(z, y), (x,)),
    "metric.equal_error_rate": (lambda z: metric.equal_error_rate(z, half), (x[:, 0],)),
    "multilabel.multilabel": (lambda z: multilabel.multilabel(z, torch.stack([half, ~half], 1), key=key, draws=1), (x,)),
    "multilabel.one_against_rest": (lambda z: multilabel.one_against_rest(z, half[:, None]), (x,)),
    "multilabel.top_k_f1": (lambda z: multilabel.top_k_f1(z, torch.stack([half, ~half, half], 1)), (x,)),
    "online.OnlineProbe": (learned, (x,)),
    "probe.linear_probe": (lambda a, b: probe.linear_probe(a, y, b, y), (x, other)),
    "probe.chosen_penalty": (lambda z: probe.chosen_penalty(z, y, key, (1.0, 2.0)), (x,)),
    "probe.fit_linear": (lambda a, b: probe.fit_linear(a, y).predict(b), (x, other)),
    "projection.project": (lambda z: projection.project(z, "pca", key=key), (x,)),
    "projection.principal_components": (lambda z: projection.principal_components(z, 2), (x,)),
    "retrieval.paired_bootstrap": (lambda a, b: retrieval.paired_bootstrap(a, b, key, 9), (x[:, 0], other[:, 0])),
    "sts.measure_sts": (lambda z: sts.measure_sts(sts_data, lambda first, second: z), (x[:, 0].double(),)),
    "sts.cosine_of": (lambda z: sts.measure_sts(sts_data, sts.cosine_of(encoder(z))), (x,)),
    "transfer.cross_validated": (lambda z: transfer.cross_validated("MR", z, y, key, 2, (1.0,)), (x,)),
    "transfer.choose_penalty": (lambda z: transfer.choose_penalty(z, y, (1.0,), key, 2), (x,)),
    "transfer.pair_features": (lambda a, b: transfer.pair_features(a, b).sum(), (x, other)),
    "variables.told_by_probes": (lambda a, b: variables.told_by_probes(a, coded, b, coded, ("v", "w")), (x, other)),
    "variables.told_as_published": (
        lambda a, b: variables.told_as_published(a, coded, np.arange(N) > 15, b, coded, ("v", "w"), key), (x, other),
    ),
    "words.agreement": (lambda z: words.agreement(z, number, words.Judged(((texts[0], texts[1]), (texts[2], texts[3])), (0.0, 1.0))), (x,)),
    "words.analogies": (lambda z: words.analogies(z, number, {"s": [tuple(texts[:4])]}), (x,)),
}  # fmt: skip
"""Each measure of numbers, and the tensors of which every one is spoiled in turn."""
WITHOUT_NUMBERS = {
    "answers.exact_match", "answers.f1", "answers.normalised", "answers.score_answers", "diagnosis.meeting_twin", "diagnosis.same_label",
    "few.draw", "inputs.as_groups", "inputs.as_labels", "lexical.ngram_jaccard", "lexical.random_words", "lexical.tf_idf_cosine",
    "linkpred.frequency", "retrieval.average_precision", "retrieval.reciprocal_rank", "retrieval.summary", "retrieval.top_k",
    "sts.read_sts_sets", "transfer.f1_score", "transfer.stratified_folds", "variables.entropy", "variables.informative",
    "variables.told_by_majority", "words.read_analogies", "words.read_judged",
}  # fmt: skip
"""Functions of texts, labels, whole numbers or truth values."""
OF_MEASURED = {
    "sts.compare_sts": "of measurements that `measure_sts` made",
    "sts.render_sts": "likewise",
    "transfer.measure_transfer": "reads files; its features go through `as_features` in `_table`, tested in test_evaluate_transfer.py",
    "ties.places": "rejects nothing itself: the callers, `hits_at` and `recall_at_1`, do",
    "ties.expected_hit": "of counts",
}


def value_or_error(measure: Callable[..., Any], *given: Tensor) -> Any:
    try:
        return measure(*given)
    except NearfarError as error:
        return error


def test_every_measure_is_covered():
    found = {"online.OnlineProbe"}
    for info in pkgutil.iter_modules(nearfar.evaluate.__path__):
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
        spoiled[(BROKEN if name not in ("words.agreement", "words.analogies") else 1, *(0,) * (z.ndim - 1))] = torch.nan
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
    assert metric.recall_at_1(apart, labels, euclidean) == float(ties.expected_hit(ties.places(scores, right), 1).mean())
    naive = sum(int(labels[scores[i].argmax()] == labels[i]) for i in range(40)) / 40
    assert metric.recall_at_1(apart, labels, euclidean) == pytest.approx(naive)
