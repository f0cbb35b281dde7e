"""Samples of a report: positive pairs and nearest neighbors, as cells of a sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.evaluate import find_nearest_neighbors
from nearfar.modalities.sprites import SampleCell, TextSheet, build_sprite_sheet

ImageBatch = Float[Tensor, "n c h w"] | Float[np.ndarray, "n c h w"]
Labels = Tensor | np.ndarray | Sequence[int]
SampleRenderer = Callable[[Tensor], Any]
"""Function from sample ids to images or strings. Only shown samples are read."""


@dataclass(frozen=True)
class SampleNeighbors:
    """Test samples, their nearest training samples (nearest first), and labels if there are any.

    Samples are images, strings, or objects with a `build_sheet` method.
    """

    queries: Float[Tensor, "q c h w"] | Float[np.ndarray, "q c h w"] | list[Any]
    neighbors: Float[Tensor, "q k c h w"] | Float[np.ndarray, "q k c h w"] | list[list[Any]]
    similarity: Float[Tensor, "q k"] | Float[np.ndarray, "q k"]
    query_labels: Labels | None = None
    neighbor_labels: Tensor | np.ndarray | None = None
    across_splits: bool = True
    """True if queries are from a test split and neighbors from a training split."""


def find_neighbors(
    train_features: Tensor, test_features: Tensor, render_train: SampleRenderer, render_test: SampleRenderer,
    queries: Sequence[int], k: int = 8,
    train_labels: Tensor | None = None, test_labels: Tensor | None = None, across_splits: bool = True,
) -> SampleNeighbors:  # fmt: skip
    """Find the `k` training samples nearest to the test samples `queries`.

    Args:
        train_features: (n, d).
        test_features: (m, d).
        render_train, render_test: functions that render samples by id.
        queries: ids of test samples.
        k: number of neighbors.
        train_labels, test_labels: labels of all samples, (n,) and (m,), or None.
        across_splits: False if both features are from the same split.
    """
    chosen = torch.as_tensor(queries)
    similarity, index = find_nearest_neighbors(train_features, test_features[chosen.to(test_features.device)], k)
    index, labels = index.cpu(), {}
    if train_labels is not None and test_labels is not None:
        labels = {"query_labels": test_labels.cpu()[chosen], "neighbor_labels": train_labels.cpu()[index]}
    return SampleNeighbors(render_test(chosen), render_train(index), similarity.cpu(), **labels, across_splits=across_splits)


@dataclass(frozen=True)
class PairTable:
    """Both views of each shown sample, and the style of the element around them."""

    style: str
    cells: list[tuple[SampleCell, SampleCell]]


def build_pair_table(pairs: tuple[ImageBatch, ImageBatch] | tuple[list[Any], list[Any]] | None) -> PairTable | None:
    """Return the table of positive pairs, or None if there are none."""
    if pairs is None or not len(pairs[0]):
        return None
    sheet, n = _build_sheet(*pairs), len(pairs[0])
    return PairTable(sheet.style, [(sheet.get_cell(i), sheet.get_cell(n + i)) for i in range(n)])


def _build_sheet(*parts: Any) -> Any:
    """Return the sheet of all samples of the parts, in order."""
    if isinstance(parts[0], list):
        samples = [sample for part in parts for sample in part]
        return TextSheet(samples) if isinstance(samples[0], str) else samples[0].build_sheet(samples)
    return build_sprite_sheet(torch.cat([torch.as_tensor(part).detach().cpu().float() for part in parts]))


@dataclass(frozen=True)
class Neighbor:
    """Neighbor of a query. `agrees` is False if its label differs from the query's."""

    cell: SampleCell
    similarity: float
    label: str | None = None
    agrees: bool = True


@dataclass(frozen=True)
class NeighborRow:
    """Query and its neighbors."""

    cell: SampleCell
    label: str | None
    neighbors: list[Neighbor]

    @property
    def agreeing_count(self) -> int:
        """Return the number of neighbors with the label of the query."""
        return sum(neighbor.agrees for neighbor in self.neighbors)


@dataclass(frozen=True)
class NeighborTable:
    """Queries with their `k` neighbors, and the style of the element around them."""

    style: str
    k: int
    rows: list[NeighborRow]
    across_splits: bool
    has_labels: bool


def build_neighbor_table(near: SampleNeighbors | None, class_names: Sequence[str] | None) -> NeighborTable | None:
    """Return the table of queries and their neighbors, or None if there are none."""
    if near is None:
        return None
    count, k = len(near.neighbors), len(near.neighbors[0])
    sheet, rows = _build_sheet(near.queries, *near.neighbors), []
    for q in range(count):
        label = None if near.query_labels is None else int(near.query_labels[q])
        neighbors = []
        for j in range(k):
            neighbor = Neighbor(sheet.get_cell(count + q * k + j), float(near.similarity[q, j]))
            if label is not None and near.neighbor_labels is not None:
                other = int(near.neighbor_labels[q, j])
                neighbor = replace(neighbor, label=get_class_name(other, class_names), agrees=other == label)
            neighbors.append(neighbor)
        rows.append(NeighborRow(sheet.get_cell(q), None if label is None else get_class_name(label, class_names), neighbors))
    return NeighborTable(sheet.style, k, rows, near.across_splits, near.query_labels is not None)


def get_class_name(label: Any, names: Sequence[str] | None) -> str:
    """Return the name of a label, or the label itself if it has none."""
    label = int(label)
    return str(names[label]) if names is not None and 0 <= label < len(names) else str(label)
