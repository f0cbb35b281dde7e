"""Columns that color the points: labels, splits, clusters, and numbers of each vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from nearfar.core import RandomKey
from nearfar.core.kmeans import kmeans
from nearfar.server.collection import Collection, IndexCollection
from nearfar.server.neighbors import ExactCosineSearch, SearchHits, SearchRequest, normalize_rows

DEFAULT_CLUSTERS = 10
KMEANS_TRAIN_ROWS = 20_000
"""Largest number of rows for the search of cluster centers. All rows are then assigned to the nearest
center."""
DENSITY_NEIGHBORS = 10
MAX_CLASSES = 1000
"""Largest number of classes. The rest are shown as one class."""


@dataclass(frozen=True)
class ColorColumn:
    """Class codes into `classes`, or numbers."""

    name: str
    data: np.ndarray
    classes: list[str] = field(default_factory=list)
    description: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the description of the column for JSON."""
        if self.classes:
            return {"name": self.name, "kind": "category", "values": self.classes, "about": self.description}
        return {
            "name": self.name,
            "kind": "number",
            "low": float(self.data.min()),
            "high": float(self.data.max()),
            "about": self.description,
        }


def list_known_columns(collection: Collection) -> list[ColorColumn]:
    """Return the columns that need no expensive computation."""
    found = []
    labels = collection.get_labels()
    if any(label is not None for label in labels):
        found.append(build_category_column("label", labels))
    if splits := collection.get_splits():
        found.append(build_category_column("split", splits))
    lengths = np.linalg.norm(collection.get_vectors(collection.rows), axis=1).astype(np.float32)
    if len(lengths) and lengths.std() > 1e-4:
        found.append(ColorColumn("length of the vector", lengths))
    return found


def build_category_column(name: str, values: list[Any]) -> ColorColumn:
    """Build a column of classes.

    Values are sorted, numbers by size.
    """
    said = ["none" if value is None else str(value) for value in values]
    names, codes = np.unique(said, return_inverse=True)
    names = sorted(names.tolist(), key=_numbers_first) if len(names) <= MAX_CLASSES else names.tolist()
    order = {value: i for i, value in enumerate(names)}
    codes = np.minimum([order[value] for value in said], MAX_CLASSES).astype("<u4")
    return ColorColumn(name, codes, names[:MAX_CLASSES] + (["others"] if len(names) > MAX_CLASSES else []))


def _numbers_first(text: str) -> tuple[int, float, str]:
    """Return a sort key that puts "2" before "10"."""
    return (0, float(text), text) if text.isascii() and text.isdigit() else (1, 0.0, text)


def compute_clusters(collection: Collection, k: int) -> ColorColumn:
    """Cluster the directions of the vectors with k-means, largest cluster first."""
    rng_key = RandomKey(0)("explorer", "clusters")
    x = torch.from_numpy(normalize_rows(collection.get_vectors(collection.rows)))
    k = min(k, len(x))
    sample = torch.from_numpy(np.sort(rng_key("rows").permutation(len(x))[:KMEANS_TRAIN_ROWS]))
    centres = kmeans(x[sample], k, rng_key).centers
    half = centres.square().sum(1) / 2
    assigned = torch.cat([(half - part @ centres.T).argmin(1) for part in x.split(65536)])
    order = torch.bincount(assigned, minlength=k).argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(k)
    return ColorColumn("cluster", place[assigned].numpy().astype("<u4"), [f"cluster {i + 1}" for i in range(k)])


def compute_density(collection: Collection, report_progress: Any) -> ColorColumn:
    """Compute the mean cosine with the ten nearest other rows.

    It is high in dense regions and low for outliers, which may be errors in the data.
    """
    found, rows, search = np.empty(len(collection), dtype="<f4"), collection.rows, _build_cosine_search(collection)
    k = min(DENSITY_NEIGHBORS, len(rows) - 1)
    for start in range(0, len(rows), 2048):
        part = slice(start, start + 2048)
        hits = search(SearchRequest(collection.get_vectors(rows[part]), k + 1))
        # A row is not always the first of its own hits.
        others = np.argsort(hits.rows == rows[part, None], axis=1, kind="stable")[:, :k]
        found[part] = np.take_along_axis(hits.scores, others, 1).sum(1) / max(k, 1)
        report_progress(min(1.0, (start + 2048) / len(rows)))
    return ColorColumn("crowding", found, description="mean cosine with the ten nearest")


def _build_cosine_search(collection: Collection) -> Callable[[SearchRequest], SearchHits]:
    """Return the collection's own search by cosine.

    For an index with another metric, return an exact search over the same vectors.
    """
    if not isinstance(collection, IndexCollection) or collection.index.metric == "cosine":
        return lambda query: collection.search([query])[0]
    exact = ExactCosineSearch(collection.get_vectors(collection.rows))

    def search(query: SearchRequest) -> SearchHits:
        (hits,) = exact([query])
        return SearchHits(hits.scores, collection.rows[hits.rows])

    return search
