r"""Graphs as arrays: one whole graph, whose nodes are the samples, or many small ones, each a sample.

Both are kept alike. The nodes of all graphs stand end to end, and their links are one block-diagonal matrix A + I (every node is
its own neighbour too) in compressed rows. What a graph convolution multiplies by is made once, when the data are first read:

\[ \hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad D_{ii} = \sum_j (A + I)_{ij} \]

Graphs are undirected and unweighted: a link in one direction counts in both, a link given twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64
from scipy.sparse import csr_matrix
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.dataset import Ids, Samples, as_index_array
from nearfar.data.common.image_stores import hash_bytes

MAX_SPARSE_DENSITY = 0.1
"""Features of which a smaller share is not 0 are multiplied as a sparse matrix."""

CSRTensors = tuple[Tensor, ...]
"""A sparse matrix by rows: where each begins, columns, values. Plain tensors, which any worker or device can take."""
GraphBatch = dict[str, Any]
"""Some graphs as an encoder takes them: "x" (nodes, f), or a sparse matrix and its transpose; "links", \\(\\hat A\\); "size" (n,), how
many nodes each graph has; "graph" (nodes,), which of them a node is of."""


@dataclass(frozen=True, eq=False)
class GraphStore:
    """All graphs of a source, in its order."""

    x: Float32[np.ndarray, "nodes f"] | csr_matrix
    """What is known of each node."""
    adjacency: csr_matrix
    r"""\(\hat A\), block-diagonal."""
    node_offsets: Int64[np.ndarray, " graphs_and_one"]
    """Graph i has the nodes `first[i]` to before `first[i + 1]`."""
    names: Sequence[str] = ()
    """Of the nodes of a whole graph; of small graphs, of the graphs; empty: they have numbers only."""
    node_label_values: tuple[int, ...] = ()
    """What the columns of x stand for, where they are a node's label one-hot."""

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def num_nodes(self) -> int:
        return int(self.node_offsets[-1])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])  # type: ignore[index]

    @cached_property
    def degrees(self) -> Int64[np.ndarray, " num_nodes"]:
        """How many neighbours each node has, itself not counted."""
        return np.diff(self.adjacency.indptr).astype(np.int64) - 1

    @cached_property
    def full_batch(self) -> GraphBatch:
        """All nodes at once."""
        size = np.diff(self.node_offsets)
        x: Any = _to_csr_tensors(self.x) + _to_csr_tensors(self.x.T.tocsr()) if isinstance(self.x, csr_matrix) else torch.from_numpy(self.x)
        return _build_graph_batch(x, _to_csr_tensors(self.adjacency), size)

    def build_batch(self, graph_ids: Int64[np.ndarray, " n"]) -> GraphBatch:
        """Some graphs, end to end."""
        size = np.diff(self.node_offsets)[graph_ids]
        begins = np.cumsum(size) - size
        nodes = np.arange(size.sum()) + np.repeat(self.node_offsets[graph_ids] - begins, size)
        chosen: Any = self.adjacency[nodes]
        shift = np.repeat(np.repeat(self.node_offsets[graph_ids] - begins, size), np.diff(chosen.indptr))
        links = (chosen.indptr.astype(np.int32), (chosen.indices - shift).astype(np.int32), chosen.data)
        x: Any = self.x[nodes]
        return _build_graph_batch(
            torch.from_numpy(x.toarray() if isinstance(x, csr_matrix) else x), tuple(map(torch.from_numpy, links)), size
        )

    @cached_property
    def fingerprint(self) -> str:
        x = (self.x.data, self.x.indices, self.x.indptr) if isinstance(self.x, csr_matrix) else (self.x,)
        shape = np.array([self.num_nodes, self.num_features, len(self)])
        return hash_bytes(
            *(np.ascontiguousarray(a).tobytes() for a in (shape, *x, self.adjacency.indices, self.adjacency.indptr, self.node_offsets))
        )


def build_graph_store(
    x: Any,
    edge_index: Int[np.ndarray, "2 links"],
    node_offsets: Int64[np.ndarray, " _"],
    names: Sequence[str] = (),
    node_label_values: tuple[int, ...] = (),
) -> GraphStore:
    """A store from features and from links by the numbers of their nodes, counted over all graphs."""
    n = int(node_offsets[-1])
    ends = np.concatenate([edge_index[0], edge_index[1], np.arange(n)]), np.concatenate([edge_index[1], edge_index[0], np.arange(n)])
    either: Any = csr_matrix((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(n, n))
    either.sum_duplicates()
    root = 1 / np.sqrt(np.diff(either.indptr))
    either.data = (np.repeat(root, np.diff(either.indptr)) * root[either.indices]).astype(np.float32)
    return GraphStore(x, either, node_offsets.astype(np.int64), names, node_label_values)


@dataclass(frozen=True, eq=False)
class _GraphSamples(Samples):
    """Some samples of a store of graphs: nodes, or whole ones."""

    store: GraphStore

    sample_noun = "sample"

    def name(self, i: int) -> str:
        row = int(self.ids[i])
        return self.store.names[row] if len(self.store.names) else f"{self.sample_noun} {row}"

    def sizes(self) -> dict[str, Any]:
        tags = {"tags": list(self.store.node_label_values)} if self.store.node_label_values else {}
        return {"n": len(self), "classes": len(self.classes), "node_features": self.store.num_features, **tags}


class Nodes(_GraphSamples):
    """Some nodes of one graph. Whoever reads any of them sees the whole graph around them."""

    sample_noun = "node"
    encode_in_one_batch = True
    """To read some costs as much as to read all: they are encoded in one go."""

    def read(self, ids: Ids) -> GraphBatch:
        """The graph, and which of its nodes are asked for."""
        return {**self.store.full_batch, "node": torch.from_numpy(self.ids[as_index_array(ids)])}

    def read_features(self) -> Float32[np.ndarray, "n f"]:
        rows: Any = self.store.x[self.ids]
        return rows.toarray() if isinstance(rows, csr_matrix) else rows

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "nodes": self.store.num_nodes}


class Graphs(_GraphSamples):
    """Some small graphs."""

    sample_noun = "graph"

    def read(self, ids: Ids) -> GraphBatch:
        return self.store.build_batch(self.ids[as_index_array(ids)])

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "graphs": len(self)}


def as_node_features(x: Any, num_nodes: int, description: str) -> Float32[np.ndarray, "n f"] | csr_matrix:
    """A table of numbers, one row a node, as float32; sparse where most of it is 0."""
    if isinstance(x, csr_matrix):
        table: Any = x.astype(np.float32)
    else:
        found = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
        if found.dtype.kind not in "biuf" or found.ndim not in (1, 2):
            raise UsageError(
                f"{description}: features are a table of numbers, one row a node; these are {found.dtype} of the shape {found.shape}"
            )
        table = found.reshape(len(found), -1).astype(np.float32)
    if table.shape[0] != num_nodes:
        raise UsageError(f"{description}: {num_nodes:,} nodes, but features of {table.shape[0]:,}")
    values = table.data if isinstance(table, csr_matrix) else table
    if not np.isfinite(values).all():
        raise UsageError(f"{description}: a feature is not a finite number")
    return table


def as_edge_index(edges: Any, num_nodes: int, description: str) -> Int64[np.ndarray, "2 links"]:
    """Pairs of node numbers, as two rows; each must be one of `n` nodes."""
    found = np.asarray(edges.detach().cpu() if isinstance(edges, Tensor) else edges)
    if found.size == 0:
        return np.zeros((2, 0), dtype=np.int64)
    if found.ndim != 2 or found.shape[0] != 2 or found.dtype.kind not in "iu":
        raise UsageError(f"{description}: links are two rows of node numbers; these are {found.dtype} of the shape {found.shape}")
    outside = (found < 0) | (found >= num_nodes)
    if outside.any():
        column = int(outside.any(0).argmax())
        raise UsageError(
            f"{description}: link {column} is between nodes {found[0, column]} and {found[1, column]}, but there are {num_nodes:,} nodes"
        )
    return found.astype(np.int64)


def _to_csr_tensors(matrix: Any) -> CSRTensors:
    return (
        torch.from_numpy(matrix.indptr.astype(np.int32)),
        torch.from_numpy(matrix.indices.astype(np.int32)),
        torch.from_numpy(matrix.data),
    )


def _build_graph_batch(x: Any, links: CSRTensors, graph_sizes: Int64[np.ndarray, " n"]) -> GraphBatch:
    sizes = torch.from_numpy(graph_sizes)
    return {"x": x, "links": links, "size": sizes, "graph": torch.arange(len(sizes)).repeat_interleave(sizes)}
