"""Modality of graphs for random walks: prediction of node groups, or geometry without groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits, Tokenizer
from nearfar.data.walks.dataset import WalkGraph
from nearfar.data.walks.inputs import WalkInputs
from nearfar.evaluate import Features, ResultTable, compare_features
from nearfar.evaluate.multilabel import multilabel_f1
from nearfar.evaluate.related_pairs import related_pair_auc
from nearfar.modalities.embedding_tables import EmbeddingTableModality, build_evaluation, build_protocol, build_result_row
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

TRAIN_FRACTION, SPLIT_DRAWS = 0.5, 10
"""Share of labeled nodes for training, and number of random splits. As in DeepWalk and node2vec."""
MULTILABEL_NOTE = (
    "F1 in per cent, of {nodes:,} nodes in {groups} groups: logistic regressions, one against the rest, learn from {share:.0%} of the "
    "nodes and answer for the others with as many groups as each is in; mean ± standard deviation over "
    "{draws} draws. All edges are seen by all."
)
NO_GROUPS_NOTE = "This graph has no groups: there is nothing to predict, only the geometry of the vectors is shown."


class WalkModality(EmbeddingTableModality):
    """Nodes of a graph with optional groups."""

    name = "walks"
    plural = "graphs for random walks"
    data_help = "A graph: 'karate', 'miserables', a list of edges, a .npz file with edge_index, or a .mat file."
    encoder_help = "Walks have none: they learn a table of vectors."
    candidates = ("node2vec",)
    bundled = ("miserables",)
    ranking_measure = "AUC of edges"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> WalkInputs:
        return WalkInputs(sizes, tokenizer)

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        splits = load_model_splits(model, data, progress)
        graph, rng_key = splits.train, RandomKey(model.config.seed)("evaluate")
        rows = {
            "degree": compute_log_degrees(graph),
            "adjacency SVD": compute_adjacency_svd(graph, model.recipe.dim),  # type: ignore[attr-defined]
        }
        rows |= {"untrained table": model.build_untrained().encode(graph), "trained table": model.encode(graph)}
        if graph.groups is None:
            found = {name: Features(x, x, baseline=name != "trained table") for name, x in rows.items() if name != "degree"}
            table = compare_features(found, rng_key=rng_key, checkpoint=f"step {model.step} of {model.config.steps}")
            table = ResultTable(table.results, table.protocol | build_protocol(model, [NO_GROUPS_NOTE]))
            return build_evaluation(model, table, splits)
        groups, results = torch.from_numpy(graph.groups), []
        for name, x in rows.items():
            f1 = multilabel_f1(x, groups, rng_key=rng_key, train_fraction=TRAIN_FRACTION, draws=SPLIT_DRAWS)
            measured = {"macro_f1": f1.macro, "micro_f1": f1.micro, "macro_f1_std": f1.macro_std, "micro_f1_std": f1.micro_std}
            results.append(build_result_row(name, name != "trained table", x, **measured))
        note = MULTILABEL_NOTE.format(nodes=int(groups.any(1).sum()), groups=groups.shape[1], share=TRAIN_FRACTION, draws=SPLIT_DRAWS)
        return build_evaluation(model, ResultTable(results, build_protocol(model, [note])), splits)

    def score_without_labels(self, model: Model, splits: Splits, rng_key: RandomKey) -> float:
        graph = splits.train
        owners = np.repeat(np.arange(len(graph)), np.diff(graph.neighbor_offsets))
        return related_pair_auc(model.encode(graph), np.stack([owners, graph.neighbors], axis=1), rng_key)

    def summarize_data(self, train: WalkGraph) -> str:
        return f"{len(train):,} nodes and {len(train.neighbors) // 2:,} edges"


def compute_log_degrees(graph: WalkGraph) -> Tensor:
    """Return the logarithm of each node's degree, (n, 1).

    The degree is the simplest property of a node.
    """
    return torch.from_numpy(np.log1p(graph.weighted_degrees).astype(np.float32))[:, None]


def compute_adjacency_svd(graph: WalkGraph, dim: int) -> Tensor:
    """Return the largest singular vectors of the adjacency matrix, (n, dim).

    They are scaled by the square roots of their singular values.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    weights = np.ones(len(graph.neighbors), dtype=np.float64) if graph.weights is None else graph.weights.astype(np.float64)
    matrix = csr_matrix((weights, graph.neighbors, graph.neighbor_offsets), shape=(len(graph), len(graph)))
    u, s, _ = svds(matrix, k=min(dim, len(graph) - 1), v0=np.ones(len(graph)))
    return torch.from_numpy((u * np.sqrt(s)).astype(np.float32))
