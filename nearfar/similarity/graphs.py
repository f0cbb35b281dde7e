"""Similarity of graphs and their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views


@dataclass(frozen=True)
class CorruptedGraph(Similarity):
    """One whole graph and its corruption.

    This pair is the only row of every step. The corrupted graph has the same links, but its nodes have
    permuted features. The output is the batch that the encoder takes, and "order" (nodes,): node i of the
    corrupted graph has the features of node order[i].
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
    """Batch of small graphs.

    A graph is similar to its own nodes and dissimilar to nodes of other graphs.
    """

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.read(rows.ids)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)
