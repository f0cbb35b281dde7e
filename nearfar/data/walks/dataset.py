"""Graphs for random walks: undirected edges between named nodes, with optional weights.

a file          two names and an optional weight per line, as in `nearfar.data.graphs.edge_lists`
a .npz file     edge_index and optional names, weights and labels (see `nearfar.data.graphs.load_nodes`)
a .mat file     `network` (a sparse matrix) and optionally `group` (nodes by groups), as for BlogCatalog
a folder        with one of these files; a file of edges is called links.txt or edges.txt (or .tsv, .csv)
'miserables'    co-appearances in Les Misérables; 'karate': a club that split into two (both from networkx)
in Python       a networkx graph, a scipy sparse matrix, or an edge_index tensor of two rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.named_samples import NamedSamples, check_names


@dataclass(frozen=True, eq=False)
class WalkGraph(NamedSamples):
    """Nodes with their neighbors. The samples are the nodes.

    The neighbors of all nodes are concatenated. Those of one node are in ascending order.
    """

    nodes: tuple[str, ...]
    neighbor_offsets: Int64[np.ndarray, " nodes_and_one"]
    """Offsets into `neighbors`. Node i has `neighbors[neighbor_offsets[i] : neighbor_offsets[i + 1]]`."""
    neighbors: Int64[np.ndarray, " edges"]
    weights: Float32[np.ndarray, " edges"] | None = None
    """Edge weights. None: all weights are equal."""
    groups: Bool[np.ndarray, "nodes groups"] | None = None
    """Group membership of each node. A node may be in any number of groups."""
    group_names: tuple[str, ...] = ()
    source: str = ""
    skipped: tuple[str, ...] = ()
    """Descriptions of lines that were skipped because they could not be read."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.nodes

    @cached_property
    def weighted_degrees(self) -> Float64[np.ndarray, " nodes"]:
        """Return the weighted degree of each node.

        Without weights, it is the number of edges. A long first-order walk visits nodes in proportion to this
        value.
        """
        weights = np.ones(len(self.neighbors)) if self.weights is None else self.weights
        owner = np.repeat(np.arange(len(self)), np.diff(self.neighbor_offsets))
        return np.bincount(owner, weights=weights, minlength=len(self)).astype(np.float64)

    @cached_property
    def fingerprint(self) -> str:
        weights = b"" if self.weights is None else self.weights.tobytes()
        return hash_bytes("\n".join(self.nodes).encode(), self.neighbor_offsets.tobytes(), self.neighbors.tobytes(), weights)

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "words": len(self)}


def build_walk_graph(
    names: Sequence[str],
    first_ends: np.ndarray,
    second_ends: np.ndarray,
    weights: np.ndarray | None = None,
    source: str = "",
    **other_fields: Any,
) -> WalkGraph:
    """Build a graph from the two ends of its edges.

    Each edge counts in both directions and once. Loops are dropped. Weights of repeated edges are added.

    Args:
        names: names of the nodes.
        first_ends: `(edges,)` node numbers.
        second_ends: `(edges,)` node numbers.
        weights: `(edges,)` numbers greater than 0, or None.
        source: source that the user requested, for messages.
        **other_fields: further fields of `WalkGraph`.

    Raises:
        UsageError: there is no edge between different nodes.
        NearfarError: a weight is not a finite number greater than 0.
    """
    from scipy.sparse import coo_matrix

    n, apart = len(names), first_ends != second_ends
    if n < 2 or not apart.any():
        raise UsageError(f"{source} has no edges between different nodes")
    value = np.ones(len(first_ends)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not np.isfinite(value).all() or (value <= 0).any():
        raise NearfarError(f"{source}: the weights of edges must be numbers greater than 0")
    half = coo_matrix(
        (value[apart], (np.minimum(first_ends, second_ends)[apart], np.maximum(first_ends, second_ends)[apart])), shape=(n, n)
    ).tocsr()
    whole: Any = (half + half.T).tocsr()
    whole.sort_indices()
    kept = None if weights is None or (whole.data == whole.data[0]).all() else whole.data.astype(np.float32)
    return WalkGraph(
        tuple(check_names(list(names))), whole.indptr.astype(np.int64), whole.indices.astype(np.int64), kept, source=source, **other_fields
    )
