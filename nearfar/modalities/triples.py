"""Knowledge graph modality: filtered ranks of the heads and tails of test triples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits, Tokenizer
from nearfar.data.triples.dataset import Triples
from nearfar.data.triples.inputs import TripleInputs
from nearfar.evaluate import ResultTable
from nearfar.evaluate.link_prediction import TripleScorer, build_frequency_baseline, evaluate_link_prediction
from nearfar.modalities.embedding_tables import EmbeddingTableModality, build_evaluation, build_protocol, build_result_row
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

MAX_RANKED_TRIPLES = 500
"""Largest number of triples that rank methods without a test."""
LINK_PREDICTION_NOTES = [
    "Link prediction, in per cent: each of {n:,} test triples asks for its head and for its tail among {entities:,} entities. Filtered: "
    "other entities that make it true, in any split, are left out. Ties: the mean of the best and the worst rank.",
    "Frequency: entities by how often they stand on that side of that relation in the training triples.",
]


class TripleModality(EmbeddingTableModality):
    """Triples of a knowledge graph.

    The recipes have a method `score(net, triples, side)` that scores each entity as completion of each
    triple.
    """

    name = "triples"
    plural = "triples"
    data_help = "Triples: 'python', lines of head, relation and tail with tabs between them, or a folder of train.txt, valid.txt, test.txt."
    encoder_help = "Triples have none: they learn a table of vectors."
    candidates = ("transe",)
    bundled = ("python",)
    ranking_measure = "MRR of validation triples"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> TripleInputs:
        return TripleInputs(sizes, tokenizer)

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        splits = load_model_splits(model, data, progress)
        train, test = splits.train, splits.test
        if test is None:
            raise UsageError(f"{train.source} has no test triples whose names all occur in training: nothing to evaluate on")
        asked, known = (torch.from_numpy(part).to(model.device) for part in (test.triples, train.known_triples))
        seen = torch.from_numpy(train.triples).to(model.device)
        rivals: dict[str, TripleScorer] = {
            "frequency": build_frequency_baseline(seen, len(train.entities), len(train.relations)),
            "untrained table": get_triple_score(model.build_untrained()),
            "trained table": get_triple_score(model),
        }
        results = [
            build_result_row(
                name,
                name != "trained table",
                **_select_measures(evaluate_link_prediction(score, asked, known, len(train.entities), progress)),
            )
            for name, score in rivals.items()
        ]
        notes = [line.format(n=len(asked), entities=len(train.entities)) for line in LINK_PREDICTION_NOTES]
        return build_evaluation(model, ResultTable(results, build_protocol(model, notes, triples=len(asked))), splits)

    def score_without_labels(self, model: Model, splits: Splits, rng_key: RandomKey) -> float:
        train: Triples = splits.train
        asked = train.valid_triples if len(train.valid_triples) else train.triples
        asked = asked[np.sort(rng_key("asked").permutation(len(asked))[:MAX_RANKED_TRIPLES])]
        rows, known = (torch.from_numpy(part).to(model.device) for part in (asked, train.known_triples))
        return evaluate_link_prediction(get_triple_score(model), rows, known, len(train.entities)).mrr

    def summarize_data(self, train: Triples) -> str:
        return f"{len(train.triples):,} training triples of {len(train.entities):,} entities and {len(train.relations):,} relations"


def get_triple_score(model: Model) -> TripleScorer:
    """Return the function that scores all entities as completions of triples."""
    recipe: Any = model.recipe
    if not hasattr(recipe, "score"):
        raise UsageError(f"{type(recipe).__name__} has no method score(net, triples, side): links cannot be predicted with it")
    return lambda triples, side: recipe.score(model.net, triples, side)


def _select_measures(measures: Any) -> dict[str, Any]:
    values = dataclasses.asdict(measures)
    return {name: values[name] for name in ("mrr", "hits1", "hits3", "hits10", "mean_rank")}
