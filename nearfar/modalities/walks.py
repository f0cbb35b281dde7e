"""Nodes are measured by the groups they are in, if the graph says so; else only their geometry can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.api.evaluate import splits_of
from nearfar.core import Key
from nearfar.data.walks.dataset import Graph
from nearfar.evaluate import Features, Table, compare
from nearfar.evaluate.multilabel import multilabel
from nearfar.modalities.interface import Evaluation, Progress
from nearfar.modalities.named_rows import TableKind, evaluation, protocol, row
from nearfar.train.model import Trained

SHARE, DRAWS = 0.5, 10
"""Of the labelled nodes as many teach as are asked about, ten times: the protocol of DeepWalk and node2vec."""
NOTE = (
    "F1 in per cent, of {nodes:,} nodes in {groups} groups: logistic regressions, one against the rest, learn from {share:.0%} of the "
    "nodes and answer for the others with as many groups as each is in; mean ± standard deviation over "
    "{draws} draws. All edges are seen by all."
)
NO_GROUPS = "This graph names no groups: there is nothing to predict, only the geometry of the vectors is shown."


class WalkKind(TableKind):
    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation:
        splits = splits_of(trained, data, progress)
        graph, key = splits.train, Key(trained.run.seed)("evaluate")
        rows = {"degree": degrees(graph), "adjacency SVD": spectral(graph, trained.recipe.dim)}  # type: ignore[attr-defined]
        rows |= {"untrained table": trained.untrained().encode(graph), "trained table": trained.encode(graph)}
        if graph.groups is None:
            found = {name: Features(x, x, baseline=name != "trained table") for name, x in rows.items() if name != "degree"}
            table = compare(found, key=key, checkpoint=f"step {trained.step} of {trained.run.steps}")
            table = Table(table.results, table.protocol | protocol(trained, [NO_GROUPS]))
            return evaluation(trained, table, splits)
        groups, results = torch.from_numpy(graph.groups), []
        for name, x in rows.items():
            f1 = multilabel(x, groups, key=key, share=SHARE, draws=DRAWS)
            measured = {"macro_f1": f1.macro, "micro_f1": f1.micro, "macro_f1_std": f1.macro_std, "micro_f1_std": f1.micro_std}
            results.append(row(name, name != "trained table", x, **measured))
        note = NOTE.format(nodes=int(groups.any(1).sum()), groups=groups.shape[1], share=SHARE, draws=DRAWS)
        return evaluation(trained, Table(results, protocol(trained, [note])), splits)

    def summary(self, train: Graph) -> str:
        return f"{len(train):,} nodes and {len(train.neighbours) // 2:,} edges"


def degrees(graph: Graph) -> Tensor:
    """The logarithm of the degree, the one number that is known of a node without looking further."""
    return torch.from_numpy(np.log1p(graph.strength).astype(np.float32))[:, None]


def spectral(graph: Graph, dim: int) -> Tensor:
    """The largest singular vectors of the adjacency matrix, scaled by the square roots of their values."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    weights = np.ones(len(graph.neighbours), dtype=np.float64) if graph.weights is None else graph.weights.astype(np.float64)
    matrix = csr_matrix((weights, graph.neighbours, graph.starts), shape=(len(graph), len(graph)))
    u, s, _ = svds(matrix, k=min(dim, len(graph) - 1), v0=np.ones(len(graph)))
    return torch.from_numpy((u * np.sqrt(s)).astype(np.float32))
