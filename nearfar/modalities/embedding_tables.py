"""Modalities of named table rows: words, entities, nodes.

They have no test split. Each of them has its own evaluation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation, Modality
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits
from nearfar.data.common.named_samples import VocabularySubset, get_vocabulary
from nearfar.evaluate import ResultTable
from nearfar.train.model import Model

MAP_ROWS, NEIGHBOR_CANDIDATE_ROWS = 2000, 20_000
"""Largest numbers of rows in a report: rows on the map, and candidates for their neighbors."""


class EmbeddingTableModality(Modality):
    """Base class of modalities with embedding tables.

    The standard evaluation does not apply: there are no views, and each modality has its own baselines.
    """

    @abstractmethod
    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        """Evaluate the model.

        Every subclass has its own evaluation.
        """
        ...

    def draw_samples(self, data: Any, count: int, rng_key: RandomKey) -> VocabularySubset:
        """Draw rows of the table by name."""
        ids = np.sort(rng_key.permutation(len(data.names))[:count])
        return VocabularySubset(tuple(data.names[i] for i in ids), ids.astype(np.int64))

    def parse_query(self, model: Model, query: str) -> list[str]:
        """Return the query as a name of the table. "text:17" is the name 17."""
        return [query.removeprefix("text:")]

    def build_sample_renderer(self, data: Any) -> Callable[[Tensor], Any]:
        return lambda ids: np.array([data.name(int(i)) for i in ids.reshape(-1)], dtype=object).reshape(ids.shape).tolist()


def build_evaluation(model: Model, table: ResultTable, splits: Splits) -> Evaluation:
    """Return an evaluation with the table and with vectors for maps and neighbors.

    The random key selects the rows of the map and the candidates for their neighbors.
    """
    order = RandomKey(model.config.seed)("evaluate", "shown").permutation(len(get_row_numbers(model)))
    shown = min(MAP_ROWS, max(1, len(order) // 5))
    asked, among = (_select_rows(model, np.sort(part)) for part in (order[:shown], order[shown : shown + NEIGHBOR_CANDIDATE_ROWS]))
    vectors = [model.encode(part) for part in (among, asked)]
    return Evaluation(table, splits, among, *vectors, untrained_features=model.build_untrained().encode(asked), test_samples=asked)


def get_row_numbers(model: Model) -> dict[str, int]:
    """Return the row number of each name, in order."""
    if model.tokenizer is None:
        raise UsageError("this run has lost the names of its rows: tokenizer.json is missing from its folder")
    return get_vocabulary(model.tokenizer)


def encode_all_rows(model: Model) -> Tensor:
    """Return the vectors of all rows, (n, d)."""
    return model.encode(_select_rows(model, np.arange(len(get_row_numbers(model)))))


def _select_rows(model: Model, ids: np.ndarray) -> VocabularySubset:
    names = list(get_row_numbers(model))
    return VocabularySubset(tuple(names[i] for i in ids), ids.astype(np.int64))


def build_protocol(model: Model, notes: list[str], **extra: Any) -> dict[str, Any]:
    """Return the protocol fields that all rows of a result table share."""
    taken = f"Vectors: step {model.step} of {model.config.steps}; nothing was chosen by these numbers."
    return {"split": "test", "checkpoint": f"step {model.step} of {model.config.steps}", "seed": model.config.seed, **extra,
            "notes": [*notes, taken]}  # fmt: skip


def build_result_row(name: str, baseline: bool, vectors: Tensor | None = None, **values: Any) -> dict[str, Any]:
    """Return one row of a result table."""
    width = {} if vectors is None else {"width": vectors.shape[1]}
    return {"representation": name, "baseline": baseline, **width, **values}


@torch.no_grad()
def list_nearest_names(model: Model, count: int, k: int = 4) -> list[str]:
    """Return the nearest names by cosine for the first rows of a table.

    Each string lists one row and its `k` neighbors. `count` is the number of rows.
    """
    from nearfar.evaluate import find_nearest_neighbors

    names, vectors = list(get_row_numbers(model)), encode_all_rows(model)
    _, index = find_nearest_neighbors(vectors, vectors[:count], min(k + 1, len(names)))
    return [f"{names[i]}: {', '.join(names[j] for j in found.tolist() if j != i)}" for i, found in enumerate(index)]
