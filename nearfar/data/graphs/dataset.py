r"""Graphs as arrays: the nodes of one whole graph, or many small graphs, are the samples.

Both cases have the same layout. The nodes of all graphs are concatenated. Their links form one block-diagonal
matrix A + I in compressed sparse rows (CSR), in which every node is also its own neighbor. The matrix of a
graph convolution is computed once, when the data are loaded:

\[ \hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad D_{ii} = \sum_j (A + I)_{ij} \]

Graphs are undirected and unweighted. A link in one direction counts in both directions, and a repeated link
counts once.
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
"""Upper limit of the share of nonzero features for multiplication as a sparse matrix."""

CSRTensors = tuple[Tensor, ...]
"""Sparse matrix in compressed rows: row offsets, columns and values.

The entries are plain tensors, so worker processes and devices can receive them.
"""
GraphBatch = dict[str, Any]
r"""Batch of graphs as an encoder takes it.

"x" holds the features (nodes, f), dense or as a sparse matrix followed by its transpose. "links" is
\(\hat A\). "size" (n,) is the number of nodes of each graph. "graph" (nodes,) is the index of the graph of
each node.
"""


@dataclass(frozen=True, eq=False)
class GraphStore:
    """All graphs of a source, in the order of the source."""

    x: Float32[np.ndarray, "nodes f"] | csr_matrix
    """Features of the nodes."""
    adjacency: csr_matrix
    r"""Normalized adjacency matrix \(\hat A\), block-diagonal."""
    node_offsets: Int64[np.ndarray, " graphs_and_one"]
    """Offsets of the graphs.

    Graph i has the nodes `node_offsets[i]` up to, not including, `node_offsets[i + 1]`.
    """
    names: Sequence[str] = ()
    """Names of the nodes of a whole graph, or names of small graphs.

    Empty if there are only numbers.
    """
    node_label_values: tuple[int, ...] = ()
    """Node labels that the columns of x stand for, if x is a one-hot encoding of node labels."""

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes of all graphs."""
        return int(self.node_offsets[-1])

    @property
    def num_features(self) -> int:
        """Return the number of features of a node."""
        return int(self.x.shape[1])  # type: ignore[index]

    @cached_property
    def degrees(self) -> Int64[np.ndarray, " num_nodes"]:
        """Return the number of neighbors of each node, without the node itself."""
        return np.diff(self.adjacency.indptr).astype(np.int64) - 1

    @cached_property
    def full_batch(self) -> GraphBatch:
        """Return all nodes as one batch."""
        size = np.diff(self.node_offsets)
        x: Any = _to_csr_tensors(self.x) + _to_csr_tensors(self.x.T.tocsr()) if isinstance(self.x, csr_matrix) else torch.from_numpy(self.x)
        return _build_graph_batch(x, _to_csr_tensors(self.adjacency), size)

    def build_batch(self, graph_ids: Int64[np.ndarray, " n"]) -> GraphBatch:
        """Build a batch of the given graphs, concatenated in this order."""
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
        """Return a hash of features, links and node offsets."""
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
    """Build a store from node features and links.

    Args:
        x: features, one row per node, dense or CSR.
        edge_index: `(2, links)` node numbers, counted over all graphs.
        node_offsets: `(graphs + 1,)` number of the first node of each graph, and the number of all nodes.
        names: names of the nodes or graphs.
        node_label_values: node labels that the columns of `x` stand for, if they are one-hot.
    """
    n = int(node_offsets[-1])
    ends = np.concatenate([edge_index[0], edge_index[1], np.arange(n)]), np.concatenate([edge_index[1], edge_index[0], np.arange(n)])
    either: Any = csr_matrix((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(n, n))
    either.sum_duplicates()
    root = 1 / np.sqrt(np.diff(either.indptr))
    either.data = (np.repeat(root, np.diff(either.indptr)) * root[either.indices]).astype(np.float32)
    return GraphStore(x, either, node_offsets.astype(np.int64), names, node_label_values)


@dataclass(frozen=True, eq=False)
class _GraphSamples(Samples):
    """Samples of a graph store: single nodes or whole graphs."""

    store: GraphStore

    sample_noun = "sample"

    def name(self, i: int) -> str:
        row = int(self.ids[i])
        return self.store.names[row] if len(self.store.names) else f"{self.sample_noun} {row}"

    def sizes(self) -> dict[str, Any]:
        tags = {"tags": list(self.store.node_label_values)} if self.store.node_label_values else {}
        return {"n": len(self), "classes": len(self.classes), "node_features": self.store.num_features, **tags}


class Nodes(_GraphSamples):
    """Subset of the nodes of one graph.

    Reading any of them returns the whole graph around them.
    """

    sample_noun = "node"
    encode_in_one_batch = True
    """Flag to encode all nodes in one batch, because reading some costs as much as reading all."""

    def read(self, ids: Ids) -> GraphBatch:
        """Return the whole graph, with the requested nodes under "node"."""
        return {**self.store.full_batch, "node": torch.from_numpy(self.ids[as_index_array(ids)])}

    def read_features(self) -> Float32[np.ndarray, "n f"]:
        """Read the features of the nodes as a dense array."""
        rows: Any = self.store.x[self.ids]
        return rows.toarray() if isinstance(rows, csr_matrix) else rows

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "nodes": self.store.num_nodes}


class Graphs(_GraphSamples):
    """Subset of the small graphs of a store."""

    sample_noun = "graph"

    def read(self, ids: Ids) -> GraphBatch:
        return self.store.build_batch(self.ids[as_index_array(ids)])

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "graphs": len(self)}


def as_node_features(x: Any, num_nodes: int, description: str) -> Float32[np.ndarray, "n f"] | csr_matrix:
    """Check a table of features and convert it to float32.

    A CSR matrix stays sparse. One-dimensional features become one column.

    Args:
        x: `(n, f)` or `(n,)` numbers: array, tensor or CSR matrix.
        num_nodes: expected number of rows.
        description: name of the graph in error messages.

    Raises:
        UsageError: wrong shape or data type, or a value that is not finite.
    """
    if isinstance(x, csr_matrix):
        table: Any = x.astype(np.float32)
    else:
        found = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
        if found.dtype.kind not in "biuf" or found.ndim not in (1, 2):
            raise UsageError(
                f"{description}: features must be a table of numbers, one row per node; got {found.dtype} of the shape {found.shape}"
            )
        table = found.reshape(len(found), -1).astype(np.float32)
    if table.shape[0] != num_nodes:
        raise UsageError(f"{description}: {num_nodes:,} nodes, but features for {table.shape[0]:,}")
    values = table.data if isinstance(table, csr_matrix) else table
    if not np.isfinite(values).all():
        raise UsageError(f"{description}: a feature is not a finite number")
    return table


def as_edge_index(edges: Any, num_nodes: int, description: str) -> Int64[np.ndarray, "2 links"]:
    """Check links and convert them to two rows of node numbers.

    Args:
        edges: `(2, links)` integers.
        num_nodes: number of nodes; each node number must be smaller.
        description: name of the graph in error messages.

    Raises:
        UsageError: wrong shape or data type, or a node number out of range.
    """
    found = np.asarray(edges.detach().cpu() if isinstance(edges, Tensor) else edges)
    if found.size == 0:
        return np.zeros((2, 0), dtype=np.int64)
    if found.ndim != 2 or found.shape[0] != 2 or found.dtype.kind not in "iu":
        raise UsageError(f"{description}: links must be two rows of node numbers; got {found.dtype} of the shape {found.shape}")
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
