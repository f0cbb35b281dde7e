"""Graph modality: small graphs.

Baselines are summed node features and neighborhood counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, triu
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.core.modality import ViewPair
from nearfar.data import Tokenizer
from nearfar.data.graphs.dataset import Graphs, build_graph_store
from nearfar.data.graphs.inputs import GraphInputs
from nearfar.evaluate import Features
from nearfar.modalities.node_data import NodeDataModality
from nearfar.train.model import Model

MAX_COUNTED_COLORS = 2048
"""Largest number of counts of a baseline. It keeps the most frequent colors of the training split."""
DROPPED_LINK_SHARE = 0.1
"""Share of the links that the second view of a graph lacks when methods are ranked."""
HASHED_COUNTS = 256
"""Number of counts that reveal equal graphs."""
REFINEMENT_ROUNDS = 3
"""Number of rounds in which each node's color is joined with its neighbors' colors."""


class GraphModality(NodeDataModality):
    """Small graphs."""

    name = "graphs"
    plural = "graphs"
    data_help = "Graphs: 'atlas', a text file in the format of GIN's authors, or a TUDataset folder."
    encoder_help = "Graphs: gcn-1x512, gin-3x32, gin-3x32-ln, … (layers x width). auto: gin-3x32."
    reveals_copies = True
    candidates = ("infograph",)
    bundled = ("atlas",)
    extensions = ("_graph_indicator.txt",)
    rowwise_encoder = "gin-3x16-ln"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> GraphInputs:
        return GraphInputs(sizes)

    def compute_baselines(self, train: Graphs, test: Graphs, views: ViewPair | None) -> dict[str, Features]:
        """Compute summed features, degree counts and neighborhood counts.

        Neighborhood counts are those of the Weisfeiler-Lehman subtree kernel.
        """
        found = {"summed features": (_sum_features(train), _sum_features(test))}
        for name, rounds in (("counted degrees", 0), ("counted neighbourhoods", REFINEMENT_ROUNDS)):
            found[name] = count_colors(train, test, rounds)
        return {name: Features(first, second, standardize=True, baseline=True) for name, (first, second) in found.items()}

    def summarize_data(self, train: Graphs) -> str:
        nodes = np.diff(train.store.node_offsets)[train.ids]
        return f"{len(train):,} training graphs of {nodes.min()} to {nodes.max()} nodes"

    def encode_ranking_views(self, model: Model, samples: Graphs, rng_key: RandomKey) -> ViewPair:
        """Encode each graph whole, and without some of its links."""
        return model.encode(samples), model.encode(drop_links(samples, DROPPED_LINK_SHARE, rng_key("links")))

    def read_raw_features(self, model: Model, data: Graphs, ids: np.ndarray) -> Tensor:
        """Return the neighborhood counts of some graphs, hashed to `HASHED_COUNTS` numbers."""
        graph, color = _list_node_colors(data.subset(ids), REFINEMENT_ROUNDS)
        counts = np.zeros((len(ids), HASHED_COUNTS), dtype=np.float32)
        np.add.at(counts, (graph, (color % np.uint64(HASHED_COUNTS)).astype(np.int64)), 1)
        return torch.from_numpy(counts)


def drop_links(data: Graphs, share: float, rng_key: RandomKey) -> Graphs:
    """Return graphs without a random share of their links. All nodes stay."""
    store = data.store
    links = triu(store.adjacency, k=1).tocoo()
    kept = rng_key.uniform(np.arange(links.nnz), 1)[:, 0] >= share
    edges = np.stack([links.row[kept], links.col[kept]]).astype(np.int64)
    thinned = build_graph_store(store.x, edges, store.node_offsets, store.names, store.node_label_values)
    return replace(data, store=thinned)


def count_colors(train: Graphs, test: Graphs, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Count the colors of each graph.

    Without rounds, nodes of equal degree have one color. With rounds, nodes with equal feature rows start
    with one color, and each round joins a node's color with the colors of its neighbors. The colors of all
    rounds are counted.

    Args:
        train: graphs that define the counted colors.
        test: graphs to count the same colors in.
        rounds: number of refinement rounds.

    Returns:
        Counts of the training and the test graphs, (n, c) each, float32.
    """
    tables = [_list_node_colors(part, rounds) for part in (train, test)]
    colours, counts = np.unique(tables[0][1], return_counts=True)
    chosen = np.sort(colours[np.argsort(-counts, kind="stable")[:MAX_COUNTED_COLORS]])
    first, second = (
        _tabulate_colors(graph, colour, len(part), chosen) for (graph, colour), part in zip(tables, (train, test), strict=True)
    )
    return first, second


def _list_node_colors(data: Graphs, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """List (graph, color) of every node in every round."""
    size = np.diff(data.store.node_offsets)[data.ids]
    graph = np.repeat(np.arange(len(data)), size)
    nodes = np.concatenate([np.arange(*data.store.node_offsets[i : i + 2]) for i in data.ids])
    if not rounds:
        return graph, data.store.degrees[nodes].astype(np.uint64)
    colours = _refine_colors(data.store, rounds)
    return np.tile(graph, len(colours)), np.concatenate([colour[nodes] for colour in colours])


def _refine_colors(store: Any, rounds: int) -> list[np.ndarray]:
    """Compute node colors as 64-bit hashes.

    Equal neighborhoods have equal hashes. Different neighborhoods have different hashes with high
    probability.
    """
    x = store.x.toarray() if isinstance(store.x, csr_matrix) else store.x
    _, first = np.unique(x, axis=0, return_inverse=True)
    colours = [_mix_bits(first.ravel().astype(np.uint64))]
    pattern = csr_matrix(
        (np.ones(store.adjacency.nnz, dtype=np.uint64), store.adjacency.indices, store.adjacency.indptr), shape=store.adjacency.shape
    )
    for _ in range(rounds):
        around = np.asarray(pattern @ _mix_bits(colours[-1]), dtype=np.uint64)
        colours.append(_mix_bits(around + np.uint64(3) * colours[-1]))
    return colours


def _mix_bits(x: np.ndarray) -> np.ndarray:
    """Mix the bits of each value.

    Any input change flips about half of the output bits.
    """
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)


def _tabulate_colors(graph: np.ndarray, color: np.ndarray, n: int, chosen: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(chosen, color), len(chosen) - 1)
    known = chosen[at] == color
    table = np.zeros((n, len(chosen)), dtype=np.float32)
    np.add.at(table, (graph[known], at[known]), 1)
    return table


def _sum_features(data: Graphs) -> np.ndarray:
    sums = np.add.reduceat(np.asarray(data.store.x), data.store.node_offsets[:-1], axis=0)
    return sums[data.ids].astype(np.float32)
