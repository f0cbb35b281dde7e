"""Knowledge graphs are measured by completing them: filtered ranks of the test triples' heads and tails."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from nearfar.api.evaluate import splits_of
from nearfar.core import UsageError
from nearfar.data.triples.dataset import Triples
from nearfar.evaluate import Table
from nearfar.evaluate.link_prediction import Score, frequency, link_prediction
from nearfar.modalities.interface import Evaluation, Progress
from nearfar.modalities.named_rows import TableKind, evaluation, protocol, row
from nearfar.train.model import Trained

NOTES = [
    "Link prediction, in per cent: each of {n:,} test triples asks for its head and for its tail among {entities:,} entities. Filtered: "
    "other entities that make it true, in any split, are left out. Ties: the mean of the best and the worst place.",
    "Frequency: entities by how often they stand on that side of that relation in the training triples.",
]


class TripleKind(TableKind):
    """Its recipes have a `score(net, triples, side)`: how well each entity completes each triple."""

    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation:
        splits = splits_of(trained, data, progress)
        train, test = splits.train, splits.test
        if test is None:
            raise UsageError(f"{train.source} has no test triples whose names all occur in training: nothing to evaluate on")
        asked, known = (torch.from_numpy(part).to(trained.device) for part in (test.triples, train.known))
        seen = torch.from_numpy(train.triples).to(trained.device)
        rivals: dict[str, Score] = {
            "frequency": frequency(seen, len(train.entities), len(train.relations)),
            "untrained table": score_of(trained.untrained()),
            "trained table": score_of(trained),
        }
        results = [
            row(name, name != "trained table", **_measured(link_prediction(score, asked, known, len(train.entities), progress)))
            for name, score in rivals.items()
        ]
        notes = [line.format(n=len(asked), entities=len(train.entities)) for line in NOTES]
        return evaluation(trained, Table(results, protocol(trained, notes, triples=len(asked))), splits)

    def summary(self, train: Triples) -> str:
        return f"{len(train.triples):,} training triples of {len(train.entities):,} entities and {len(train.relations):,} relations"


def score_of(trained: Trained) -> Score:
    recipe: Any = trained.recipe
    if not hasattr(recipe, "score"):
        raise UsageError(f"{type(recipe).__name__} has no method score(net, triples, side): links cannot be predicted with it")
    return lambda triples, side: recipe.score(trained.net, triples, side)


def _measured(found: Any) -> dict[str, Any]:
    values = dataclasses.asdict(found)
    return {name: values[name] for name in ("mrr", "hits1", "hits3", "hits10", "mean_rank")}
