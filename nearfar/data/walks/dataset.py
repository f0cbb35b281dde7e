"""Graphs for random walks: undirected edges between named nodes, with optional weights.

a file          two names and an optional weight per line, as in `nearfar.data.graphs.edge_lists`
a .npz file     edge_index and optional names, weights and labels (see `nearfar.data.graphs.load_nodes`)
a .mat file     `network` (a sparse matrix) and optionally `group` (nodes by groups), as for BlogCatalog
a folder        with one of these files; a file of edges is called links.txt or edges.txt (or .tsv, .csv)
'miserables'    co-appearances in Les Misérables; 'karate': a club that split into two (both from networkx)
in Python       a networkx graph, a scipy sparse matrix, or an edge_index tensor of two rows
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.named_samples import NamedSamples, check_names
from nearfar.data.common.text_rows import RowCollector
from nearfar.data.graphs.dataset import as_edge_index
from nearfar.data.graphs.edge_lists import EDGE_FILE_NAMES, read_edge_rows
from nearfar.data.graphs.load_nodes import count_nodes, read_graph_npz, read_node_labels, read_node_names

BUILTIN_GRAPHS = {"miserables": "les_miserables_graph", "karate": "karate_club_graph"}
"""networkx function of each built-in graph."""


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


def load_walks(spec: Any, on_error: str = "stop") -> WalkGraph:
    """Load a graph for random walks.

    The module docstring lists the sources.

    Args:
        spec: source of the graph, or a loaded `WalkGraph`.
        on_error: "stop" to raise at a broken line of a file, "skip" to omit it.

    Raises:
        UsageError: the source is missing or not supported.
    """
    if isinstance(spec, WalkGraph):
        return spec
    if isinstance(spec, (str, os.PathLike)):
        return _load_by_name(os.fspath(spec), on_error)
    if isinstance(spec, Tensor) and spec.ndim == 2 and len(spec) == 2 and not spec.is_floating_point():
        pairs = spec.cpu().numpy().astype(np.int64)
        return build_walk_graph([str(i) for i in range(int(pairs.max(initial=-1)) + 1)], pairs[0], pairs[1], source="edge_index")
    if hasattr(spec, "tocoo"):
        return _from_matrix(spec, "sparse matrix")
    if hasattr(spec, "nodes") and hasattr(spec, "edges"):
        return _from_networkx(spec, "networkx graph")
    raise UsageError(
        f"cannot read a graph from a {type(spec).__name__}: give a name, a file of edges, a .npz, a .mat, a networkx graph, a scipy "
        "sparse matrix, or an edge_index tensor (2, edges)"
    )


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


def _load_by_name(text: str, on_error: str) -> WalkGraph:
    if text in BUILTIN_GRAPHS:
        return _from_networkx(getattr(_import_networkx(), BUILTIN_GRAPHS[text])(), text)
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, BUILTIN_GRAPHS, "graph")
    if path.is_dir():
        found = [*path.glob("*.mat"), *path.glob("*.npz"), *(path / name for name in EDGE_FILE_NAMES if (path / name).is_file())]
        if len(found) != 1:
            raise UsageError(f"the folder {path} has {len(found)} graphs (.mat, .npz, {', '.join(EDGE_FILE_NAMES[:3])}, …): name one file")
        path = found[0]
    if path.suffix == ".npz":
        return _from_npz(path, text)
    return _from_mat(path, text) if path.suffix == ".mat" else _from_lines(path, text, on_error)


def _import_networkx() -> Any:
    import networkx

    return networkx


def _from_networkx(graph: Any, source: str) -> WalkGraph:
    names = [str(node) for node in graph.nodes]
    place = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(place[a], place[b], float(w)) for a, b, w in graph.edges(data="weight", default=1.0)]
    ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
    clubs = [graph.nodes[node].get("club") for node in graph.nodes]
    groups = _one_hot_groups(clubs) if None not in clubs else {}
    return build_walk_graph(names, ends[:, 0], ends[:, 1], np.array([edge[2] for edge in edges]), source, **groups)


def _one_hot_groups(node_groups: Sequence[str]) -> dict[str, Any]:
    names = tuple(sorted(set(node_groups)))
    return {"groups": np.array(node_groups)[:, None] == np.array(names), "group_names": names}


def _from_matrix(matrix: Any, source: str, **groups: Any) -> WalkGraph:
    if matrix.shape[0] != matrix.shape[1]:
        raise UsageError(f"{source}: a matrix of edges is square, this one is {matrix.shape[0]} by {matrix.shape[1]}")
    found = matrix.tocoo()
    both = found.maximum(found.T).tocoo()  # a symmetric matrix holds every edge twice
    upper = both.row < both.col
    names = [str(i) for i in range(matrix.shape[0])]
    return build_walk_graph(names, both.row[upper].astype(np.int64), both.col[upper].astype(np.int64), both.data[upper], source, **groups)


def _from_mat(path: Path, source: str) -> WalkGraph:
    from scipy.io import loadmat

    try:
        found = loadmat(path)
    except (ValueError, TypeError, NotImplementedError, OSError) as e:
        raise NearfarError(f"{path}: not a .mat file that can be read ({e})") from e
    if "network" not in found:
        raise NearfarError(f"{path}: it has no matrix 'network' (found: {', '.join(k for k in found if not k.startswith('_')) or 'none'})")
    groups: dict[str, Any] = {}
    if "group" in found:
        table = found["group"]
        member = np.asarray(table.todense() if hasattr(table, "todense") else table) > 0
        groups = {"groups": member, "group_names": tuple(str(i) for i in range(member.shape[1]))}
    return _from_matrix(found["network"], source, **groups)


def _from_npz(path: Path, source: str) -> WalkGraph:
    fields = read_graph_npz(path)
    n = count_nodes(fields, str(path))
    a, b = as_edge_index(fields["edge_index"], n, str(path))
    weights = fields.get("weights")
    if weights is not None and (weights.shape != a.shape or weights.dtype.kind not in "iuf"):
        raise UsageError(f"{path}: weights are one number for each of {len(a):,} links; these are {weights.dtype} of {weights.shape}")
    known, labels, classes = read_node_labels(fields, n, str(path))
    member = np.zeros((n, len(classes)), dtype=bool)
    member[known, labels] = True
    groups = {"groups": member, "group_names": classes} if classes else {}
    return build_walk_graph(read_node_names(fields, n, str(path)) or [str(i) for i in range(n)], a, b, weights, source, **groups)


def _from_lines(path: Path, source: str, on_error: str) -> WalkGraph:
    place: dict[str, int] = {}
    ends: list[tuple[int, int]] = []
    weights: list[float] = []
    weighted: bool | None = None
    rows = RowCollector(on_error)
    for number, fields in read_edge_rows(path, rows):
        if wrong := _describe_problem(fields, weighted):
            rows.reject_row(number, wrong)
            continue
        weighted = len(fields) == 3
        ends.append((place.setdefault(fields[0], len(place)), place.setdefault(fields[1], len(place))))
        weights.append(float(fields[2]) if weighted else 1.0)
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    given = np.array(weights) if weighted else None
    return build_walk_graph(list(place), pairs[:, 0], pairs[:, 1], given, source, skipped=tuple(rows.skipped))


def _describe_problem(fields: list[str], weighted: bool | None) -> str:
    """Describe the error in a line.

    Return an empty string if the line is valid. The first valid line decides if all lines have a weight.
    Until then `weighted` is None.
    """
    if len(fields) not in ((2, 3) if weighted is None else (2 + weighted,)) or not all(fields):
        wanted = "two names and a weight" if weighted else "two names"
        return f"{wanted} were expected, found {', '.join(map(repr, fields))[:80]}"
    if len(fields) == 3 and not _is_weight(fields[2]):
        return f"the weight {fields[2]!r} is no number greater than 0"
    return ""


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
