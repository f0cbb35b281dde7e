"""Node modality: nodes of one graph.

Baselines are the node features, raw and averaged over neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from nearfar.core import RandomKey
from nearfar.core.modality import ViewPair
from nearfar.data import Splits, Tokenizer
from nearfar.data.graphs.dataset import Nodes
from nearfar.data.graphs.inputs import NodeInputs
from nearfar.evaluate import Features
from nearfar.evaluate.related_pairs import related_pair_auc
from nearfar.modalities.node_data import NodeDataModality
from nearfar.train.model import Model


class NodeModality(NodeDataModality):
    """Nodes of one graph."""

    name = "nodes"
    plural = "nodes of a graph"
    data_help = "A graph: 'karate', a .npz file with edge_index, or a list of edges."
    encoder_help = "Nodes: gcn-1x512, gin-3x32, gin-3x32-ln, … (layers x width). auto: gcn-1x512."
    candidates = ("dgi", "mvgrl")
    bundled = ("karate",)
    ranking_measure = "AUC of edges"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> NodeInputs:
        return NodeInputs(sizes)

    def compute_baselines(self, train: Nodes, test: Nodes, views: ViewPair | None) -> dict[str, Features]:
        """Return the raw features and the features averaged over neighbors, as in one graph convolution."""
        averaged: Any = train.store.adjacency @ train.store.x
        rows = {"raw features": train.store.x, "averaged features": averaged}
        return {
            name: Features(_to_dense(x, train.ids), _to_dense(x, test.ids), standardize=False, baseline=True) for name, x in rows.items()
        }

    def score_without_labels(self, model: Model, splits: Splits, rng_key: RandomKey) -> float:
        store = splits.train.store
        links = store.adjacency.tocoo()
        pairs = np.stack([links.row, links.col], axis=1).astype(np.int64)
        vectors = model.encode(replace(splits.train, ids=np.arange(store.num_nodes), labels=None))
        return related_pair_auc(vectors, pairs[pairs[:, 0] != pairs[:, 1]], rng_key)

    def summarize_data(self, train: Nodes) -> str:
        links = (train.store.adjacency.nnz - train.store.num_nodes) // 2
        return f"A graph of {train.store.num_nodes:,} nodes and {links:,} links, {len(train):,} nodes to learn classes from"


def _to_dense(x: Any, rows: np.ndarray) -> np.ndarray:
    found = x[rows]
    return np.asarray(found.toarray() if isinstance(found, csr_matrix) else found, dtype=np.float32)
