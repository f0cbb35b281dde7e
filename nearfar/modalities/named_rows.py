"""Things that have a name and a row of a table: words, entities, nodes. They have no test split; each modality measures itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import Key, UsageError
from nearfar.data import Splits
from nearfar.data.common.names import Words, numbers
from nearfar.evaluate import Table
from nearfar.modalities.interface import Evaluation, Kind, Progress
from nearfar.train.model import Trained

SHOWN, AMONG = 2000, 20_000
"""How many rows of the table a report draws a map of, and among how many others it looks for their neighbours, at most."""


class TableKind(Kind):
    """What all tables have in common. None of the standard parts apply: there are no views, and baselines are each modality's own."""

    @abstractmethod
    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation: ...

    def shown(self, data: Any) -> Callable[[Tensor], Any]:
        return lambda ids: np.array([data.name(int(i)) for i in ids.reshape(-1)], dtype=object).reshape(ids.shape).tolist()


def evaluation(trained: Trained, table: Table, splits: Splits) -> Evaluation:
    """The table with vectors to look at: some rows, drawn by key, and others in which their neighbours are looked for."""
    order = Key(trained.run.seed)("evaluate", "shown").permutation(len(names_of(trained)))
    shown = min(SHOWN, max(1, len(order) // 5))
    asked, among = (_named(trained, np.sort(part)) for part in (order[:shown], order[shown : shown + AMONG]))
    vectors = [trained.encode(part) for part in (among, asked)]
    return Evaluation(table, splits, among, *vectors, untrained=trained.untrained().encode(asked), asked=asked)


def names_of(trained: Trained) -> dict[str, int]:
    """The names of all rows, each with its number, in order."""
    if trained.tokenizer is None:
        raise UsageError("this run has lost the names of its rows: tokenizer.json is missing from its folder")
    return numbers(trained.tokenizer)


def every_row(trained: Trained) -> Tensor:
    return trained.encode(_named(trained, np.arange(len(names_of(trained)))))


def _named(trained: Trained, ids: np.ndarray) -> Words:
    names = list(names_of(trained))
    return Words(tuple(names[i] for i in ids), ids.astype(np.int64))


def protocol(trained: Trained, notes: list[str], **more: Any) -> dict[str, Any]:
    """What every row of a table of results shares."""
    taken = f"Vectors: step {trained.step} of {trained.run.steps}; nothing was chosen by these numbers."
    return {"split": "test", "checkpoint": f"step {trained.step} of {trained.run.steps}", "seed": trained.run.seed, **more,
            "notes": [*notes, taken]}  # fmt: skip


def row(name: str, baseline: bool, vectors: Tensor | None = None, **values: Any) -> dict[str, Any]:
    width = {} if vectors is None else {"width": vectors.shape[1]}
    return {"representation": name, "baseline": baseline, **width, **values}


@torch.no_grad()
def nearest_names(trained: Trained, count: int, k: int = 4) -> list[str]:
    """For the first rows of a table, which names are nearest by cosine."""
    from nearfar.evaluate import nearest

    names, vectors = list(names_of(trained)), every_row(trained)
    _, index = nearest(vectors, vectors[:count], min(k + 1, len(names)))
    return [f"{names[i]}: {', '.join(names[j] for j in found.tolist() if j != i)}" for i, found in enumerate(index)]
