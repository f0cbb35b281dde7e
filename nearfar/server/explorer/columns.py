"""What points can be coloured by: labels, splits, clusters, and numbers of each vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from nearfar.core import Key
from nearfar.core.kmeans import kmeans
from nearfar.server.collection import Collection, IndexCollection
from nearfar.server.neighbors import Exact, Found, Query, unit

CLUSTERS = 10
LEARNT_FROM = 20_000
"""Rows that centres are sought from; all rows are then given to the nearest."""
CROWD = 10
MOST_VALUES = 1000
"""Classes beyond this are shown as one."""


@dataclass(frozen=True)
class Column:
    """Codes into `values`, or numbers."""

    name: str
    data: np.ndarray
    values: list[str] = field(default_factory=list)
    about: str = ""

    def described(self) -> dict[str, Any]:
        if self.values:
            return {"name": self.name, "kind": "category", "values": self.values, "about": self.about}
        return {"name": self.name, "kind": "number", "low": float(self.data.min()), "high": float(self.data.max()), "about": self.about}


def known_columns(collection: Collection) -> list[Column]:
    """Those that cost nothing."""
    found = []
    labels = collection.labels()
    if any(label is not None for label in labels):
        found.append(category("label", labels))
    if splits := collection.splits():
        found.append(category("split", splits))
    lengths = np.linalg.norm(collection.vectors(collection.rows), axis=1).astype(np.float32)
    if len(lengths) and lengths.std() > 1e-4:
        found.append(Column("length of the vector", lengths))
    return found


def category(name: str, values: list[Any]) -> Column:
    said = ["none" if value is None else str(value) for value in values]
    names, codes = np.unique(said, return_inverse=True)
    names = sorted(names.tolist(), key=_numbers_first) if len(names) <= MOST_VALUES else names.tolist()
    order = {value: i for i, value in enumerate(names)}
    codes = np.minimum([order[value] for value in said], MOST_VALUES).astype("<u4")
    return Column(name, codes, names[:MOST_VALUES] + (["others"] if len(names) > MOST_VALUES else []))


def _numbers_first(text: str) -> tuple[int, float, str]:
    """ "2" before "10"."""
    return (0, float(text), text) if text.isascii() and text.isdigit() else (1, 0.0, text)


def clusters(collection: Collection, k: int) -> Column:
    """k-means of the directions, largest cluster first."""
    key = Key(0)("explorer", "clusters")
    x = torch.from_numpy(unit(collection.vectors(collection.rows)))
    k = min(k, len(x))
    sample = torch.from_numpy(np.sort(key("rows").permutation(len(x))[:LEARNT_FROM]))
    centres = kmeans(x[sample], k, key).centres
    half = centres.square().sum(1) / 2
    assigned = torch.cat([(half - part @ centres.T).argmin(1) for part in x.split(65536)])
    order = torch.bincount(assigned, minlength=k).argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(k)
    return Column("cluster", place[assigned].numpy().astype("<u4"), [f"cluster {i + 1}" for i in range(k)])


def crowding(collection: Collection, report: Any) -> Column:
    """The mean cosine with the ten nearest others: high in crowds, low for loners, who may be errors in the data."""
    found, rows, search = np.empty(len(collection), dtype="<f4"), collection.rows, _by_cosine(collection)
    k = min(CROWD, len(rows) - 1)
    for start in range(0, len(rows), 2048):
        part = slice(start, start + 2048)
        hits = search(Query(collection.vectors(rows[part]), k + 1))
        others = np.argsort(hits.rows == rows[part, None], axis=1, kind="stable")[:, :k]  # a row may not be the first of its own hits
        found[part] = np.take_along_axis(hits.scores, others, 1).sum(1) / max(k, 1)
        report(min(1.0, (start + 2048) / len(rows)))
    return Column("crowding", found, about="mean cosine with the ten nearest")


def _by_cosine(collection: Collection) -> Callable[[Query], Found]:
    """The collection's own search; where that is an index by another metric, an exact one of the same vectors."""
    if not isinstance(collection, IndexCollection) or collection.index.metric == "cosine":
        return lambda query: collection.search([query])[0]
    exact = Exact(collection.vectors(collection.rows))

    def search(query: Query) -> Found:
        (hits,) = exact([query])
        return Found(hits.scores, collection.rows[hits.rows])

    return search
