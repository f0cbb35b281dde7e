"""What counts as alike among graphs: a graph and the nodes in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views


@dataclass(frozen=True)
class CorruptedGraph(Similarity):
    """One whole graph, and the same links between nodes that have swapped their features: the one row of every step.

    Gives the graph as its encoder takes it, and "order" (nodes,): node i of the corrupted graph has the features of node order[i].
    """

    def count(self, data: Any) -> int:
        return 1

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.store.full_batch

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        graph = raw["graph"]
        draws = rng_key("order").bits(torch.as_tensor(rows.slots, device=graph.device), len(graph))
        return {**raw, "order": draws[0].argsort()}


@dataclass(frozen=True)
class GraphNodePairs(Similarity):
    """A batch of small graphs: a graph is like its own nodes, and unlike those of the others."""

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.read(rows.ids)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)
