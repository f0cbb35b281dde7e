"""File formats and objects of graphs for walks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.graphs.dataset import as_edge_index
from nearfar.data.graphs.edge_lists import read_edge_rows
from nearfar.data.graphs.load_nodes import count_nodes, read_graph_npz, read_node_labels, read_node_names
from nearfar.data.text.readers import RowCollector
from nearfar.data.walks.dataset import WalkGraph, build_walk_graph


def read_networkx_graph(graph: Any, source: str) -> WalkGraph:
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


def read_adjacency_matrix(matrix: Any, source: str, **groups: Any) -> WalkGraph:
    if matrix.shape[0] != matrix.shape[1]:
        raise UsageError(f"{source}: a matrix of edges must be square, this one is {matrix.shape[0]} by {matrix.shape[1]}")
    found = matrix.tocoo()
    both = found.maximum(found.T).tocoo()  # a symmetric matrix holds every edge twice
    upper = both.row < both.col
    names = [str(i) for i in range(matrix.shape[0])]
    return build_walk_graph(names, both.row[upper].astype(np.int64), both.col[upper].astype(np.int64), both.data[upper], source, **groups)


def read_mat_file(path: Path, source: str) -> WalkGraph:
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
    return read_adjacency_matrix(found["network"], source, **groups)


def read_npz_links(path: Path, source: str) -> WalkGraph:
    fields = read_graph_npz(path)
    n = count_nodes(fields, str(path))
    a, b = as_edge_index(fields["edge_index"], n, str(path))
    weights = fields.get("weights")
    if weights is not None and (weights.shape != a.shape or weights.dtype.kind not in "iuf"):
        raise UsageError(f"{path}: weights must be one number for each of {len(a):,} links; got {weights.dtype} of {weights.shape}")
    known, labels, classes = read_node_labels(fields, n, str(path))
    member = np.zeros((n, len(classes)), dtype=bool)
    member[known, labels] = True
    groups = {"groups": member, "group_names": classes} if classes else {}
    return build_walk_graph(read_node_names(fields, n, str(path)) or [str(i) for i in range(n)], a, b, weights, source, **groups)


def read_edge_lines(path: Path, source: str, on_error: str) -> WalkGraph:
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
        return f"the weight {fields[2]!r} is not a number greater than 0"
    return ""


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
