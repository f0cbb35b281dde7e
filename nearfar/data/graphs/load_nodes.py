"""Loading of one whole graph from a file or an object in memory.

A file holds arrays or a list of links. A `.npz` file, a dict or a torch-geometric `Data` object has these
fields:

    edge_index    (2, m) node numbers; also called `links`
    x             (n, f) node features; or x_indptr, x_indices, x_data, x_shape (the same as a CSR
                  matrix); optional
    y             (n,) labels, -1 if unknown; also called `labels`; optional
    names         (n,) texts, the names of the nodes; optional, default: their numbers
    weights       (m,) numbers greater than 0, for walks (see `nearfar.data.walks.dataset`); also called
                  `edge_weight`; optional
    train, test   (n,) booleans: a predefined split, without a node in both; also called `train_mask` and
                  `test_mask`; optional

A list of links is a text file (see `nearfar.data.graphs.edge_lists`).

Features without negative values (words, counts) are divided by their sum, node by node. Nodes without
features get their number as a one-hot vector.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags, eye

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.arrays import encode_labels
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.graphs.dataset import MAX_SPARSE_DENSITY, Nodes, as_edge_index, as_node_features, build_graph_store
from nearfar.data.graphs.edge_lists import EDGE_FILE_NAMES, read_edge_list

_OTHER_NAMES = {
    "links": "edge_index",
    "labels": "y",
    "edge_weight": "weights",
    "train_mask": "train",
    "val_mask": "val",
    "test_mask": "test",
}
_FIELDS = ("edge_index", "x", "x_indptr", "x_indices", "x_data", "x_shape", "y", "names", "train", "val", "test", "num_nodes")


@dataclass(frozen=True)
class NodeGraph:
    """One graph with labels and an optional predefined split.

    `nodes` has labels if every node has a label.
    """

    nodes: Nodes
    labeled: Nodes
    """Nodes with a label. If no node has a label, all nodes."""
    train_ids: np.ndarray | None = None
    """Training positions in `labeled`, if the data have a split."""
    test_ids: np.ndarray | None = None
    """Test positions in `labeled`, if the data have a split."""
    val_ids: np.ndarray | None = None
    """Validation positions in `labeled`, if the data have a validation split."""


def load_nodes(spec: Any, *, seed: int = 0, test_ids: Sequence[int] | None = None, on_error: str = "stop") -> Splits:
    """Load a graph and split its labeled nodes.

    Both splits see the whole graph, including nodes without a label.

    Args:
        spec: 'karate'; a .npz; a file of links; a folder with either; a dict of arrays; a torch-geometric
            `Data`; or a networkx graph.
        seed: random seed of the split if the data have none; it holds out one in five nodes of each class.
        test_ids: test rows stored by an earlier run.
        on_error: "stop" to raise at a broken line of a text file, "skip" to omit it.

    Raises:
        UsageError: too few nodes, or a predefined split that is empty or overlaps.
    """
    found = load_node_graph(spec, on_error)
    if len(found.labeled) < 2:
        raise UsageError(f"{found.nodes.source} has {len(found.labeled)} nodes to learn from; at least 2 are needed")
    if found.train_ids is not None and found.test_ids is not None:
        if empty := [name for name, nodes in (("train", found.train_ids), ("test", found.test_ids)) if not len(nodes)]:
            raise UsageError(f"{found.nodes.source}: the mask {empty[0]!r} selects no node. Select some, or leave the masks out")
        _check_overlap(found, found.train_ids, "training")
        if found.val_ids is not None:
            _check_overlap(found, found.val_ids, "validation")
        splits = split_train_test(Splits(found.labeled.subset(found.train_ids), found.labeled.subset(found.test_ids)), seed, test_ids)
        return splits if found.val_ids is None else replace(splits, validation=found.labeled.subset(found.val_ids))
    return split_train_test(Splits(found.labeled, None), seed, test_ids)


def _check_overlap(graph: NodeGraph, ids: np.ndarray, purpose: str) -> None:
    """Raise `UsageError` if test nodes are also for another purpose."""
    assert graph.test_ids is not None
    both = np.intersect1d(ids, graph.test_ids)
    if len(both):
        counted = "1 node is" if len(both) == 1 else f"{len(both):,} nodes are"
        raise UsageError(
            f"{graph.nodes.source}: {counted} for {purpose} and for testing; the first: {graph.labeled.name(int(both[0]))}. "
            "Remove each from one of the masks"
        )


def load_node_graph(spec: Any, on_error: str = "stop") -> NodeGraph:
    """Load a graph with all its nodes."""
    if isinstance(spec, (str, os.PathLike)):
        return _load_karate() if os.fspath(spec) == "karate" else _read_path(os.fspath(spec), on_error)
    return build_node_graph(read_graph_fields(spec), f"{type(spec).__name__} of nodes")


def read_graph_fields(graph: Any) -> dict[str, Any]:
    """Read the fields of a graph in memory.

    The graph is a mapping, an object with the fields as attributes, or a networkx graph.

    Raises:
        UsageError: there is no edge_index.
    """
    if hasattr(graph, "adjacency") and hasattr(graph, "nodes"):
        import networkx as nx

        number = {node: i for i, node in enumerate(graph.nodes)}
        links = [(number[a], number[b]) for a, b in graph.edges()]
        labels = nx.get_node_attributes(graph, "y")
        found = {"edge_index": np.array(links, dtype=np.int64).reshape(-1, 2).T, "num_nodes": len(number)}
        return found | ({"y": [labels[node] for node in graph.nodes]} if len(labels) == len(number) else {})
    get = graph.get if isinstance(graph, Mapping) else lambda name: getattr(graph, name, None)
    found = {_OTHER_NAMES.get(name, name): get(name) for name in (*_FIELDS, *_OTHER_NAMES) if get(name) is not None}
    if "edge_index" not in found:
        raise UsageError(
            f"cannot read a graph from a {type(graph).__name__} without edge_index: give a name, a path, a dict of arrays, "
            "a torch-geometric Data object or a networkx graph"
        )
    return found


def build_node_graph(fields: Mapping[str, Any], description: str, source: str = "", skipped: tuple[str, ...] = ()) -> NodeGraph:
    """Build a graph from its fields (see the module docstring).

    Args:
        fields: arrays by field name.
        description: origin of the fields, for error messages.
        source: source that the user requested.
        skipped: descriptions of the skipped lines.
    """
    n = count_nodes(fields, description)
    links = as_edge_index(fields["edge_index"], n, description)
    store = build_graph_store(_build_features(fields, n, description), links, np.array([0, n]), read_node_names(fields, n, description))
    every = Nodes(store, np.arange(n), source=source or description, skipped=skipped)
    if fields.get("y") is None:
        return NodeGraph(every, every)
    ids, labels, classes = read_node_labels(fields, n, description)
    labelled = Nodes(store, ids, labels, classes, every.source, skipped)
    train, test, val = (_read_mask(fields, name, np.isin(np.arange(n), ids), description) for name in ("train", "test", "val"))
    return NodeGraph(labelled if len(ids) == n else every, labelled, train, test, val)


def read_node_labels(fields: Mapping[str, Any], num_nodes: int, description: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Read node labels from the fields of a graph.

    Returns:
        The labeled nodes, the class index of each, and the class names.
    """
    y = np.full(num_nodes, -1) if fields.get("y") is None else np.asarray(fields["y"])
    if y.shape not in ((num_nodes,), (num_nodes, 1)) or y.dtype.kind not in "biuU":
        raise UsageError(
            f"{description}: labels must be one whole number or text for each of {num_nodes:,} nodes; got {y.dtype} of the shape {y.shape}"
        )
    y = y.reshape(num_nodes)
    known = np.nonzero(y != "" if y.dtype.kind == "U" else y.astype(np.int64) >= 0)[0]
    (labels,), classes = encode_labels(y[known])
    assert labels is not None
    return known, labels, classes


def read_node_names(fields: Mapping[str, Any], num_nodes: int, description: str) -> tuple[str, ...]:
    """Read node names.

    Return an empty tuple if nodes have only numbers.
    """
    if fields.get("names") is None:
        return ()
    names = fields["names"].tolist() if isinstance(fields["names"], np.ndarray) else list(fields["names"])
    if not all(isinstance(name, str) for name in names) or not len(names) == len(set(names)) == num_nodes:
        raise UsageError(f"{description}: names must be different texts, one for each of {num_nodes:,} nodes; got {str(names)[:80]}")
    return tuple(names)


def count_nodes(fields: Mapping[str, Any], description: str) -> int:
    """Count the nodes of a graph.

    The count comes from the features or labels. Without both, the highest node number in the links determines
    it.
    """
    for name in ("num_nodes", "x_shape", "x", "y"):
        value = fields.get(name)
        if value is not None:
            return int(value) if name == "num_nodes" else int(value[0]) if name == "x_shape" else len(value)
    links = np.asarray(fields["edge_index"])
    if not links.size:
        raise UsageError(f"{description} has no nodes")
    return int(links.max()) + 1


def _build_features(fields: Mapping[str, Any], num_nodes: int, description: str) -> Any:
    if "x_data" in fields:
        try:
            x: Any = csr_matrix((fields["x_data"], fields["x_indices"], fields["x_indptr"]), shape=tuple(fields["x_shape"]))
            x.check_format(full_check=True)
        except (ValueError, KeyError, TypeError, IndexError) as e:
            raise UsageError(f"{description}: x_indptr, x_indices, x_data and x_shape are not a matrix in compressed rows: {e}") from e
    elif fields.get("x") is not None:
        x = fields["x"]
    else:
        return csr_matrix(eye(num_nodes)).astype(np.float32)
    table = as_node_features(x, num_nodes, description)
    if isinstance(table, np.ndarray):
        return _normalize_rows(csr_matrix(table) if np.count_nonzero(table) < MAX_SPARSE_DENSITY * table.size else table)
    rows, columns = table.get_shape()
    return _normalize_rows(table if table.nnz < MAX_SPARSE_DENSITY * rows * columns else table.toarray())


def _normalize_rows(x: Any) -> Any:
    """Divide each row by its sum if no value is negative.

    Rows of zeros stay zero.
    """
    if (x.data if isinstance(x, csr_matrix) else x).min(initial=0) < 0:
        return x
    scale = 1 / np.maximum(np.asarray(x.sum(1), dtype=np.float32).ravel(), np.finfo(np.float32).tiny)
    return csr_matrix(diags(scale) @ x).astype(np.float32) if isinstance(x, csr_matrix) else x * scale[:, None]


def _read_mask(fields: Mapping[str, Any], name: str, labeled: np.ndarray, description: str) -> np.ndarray | None:
    if fields.get(name) is None:
        return None
    mask = np.asarray(fields[name])
    if mask.dtype != bool or mask.shape != labeled.shape:
        raise UsageError(
            f"{description}: {name!r} must be one boolean for each of {len(labeled):,} nodes; got {mask.dtype} of the shape {mask.shape}"
        )
    if (mask & ~labeled).any():
        raise UsageError(f"{description}: {name!r} selects node {int((mask & ~labeled).argmax())}, which has no label")
    return np.nonzero(mask[labeled])[0]


def _read_path(text: str, on_error: str) -> NodeGraph:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, ["karate"], "graph")
    if path.is_file():
        return _read_npz(path, text) if path.suffix == ".npz" else _read_edge_file(path, text, on_error)
    archives, links = sorted(path.glob("*.npz")), [path / name for name in EDGE_FILE_NAMES if (path / name).is_file()]
    if len(archives) + len(links) != 1:
        raise UsageError(f"the folder {path} must hold one graph: one .npz, or one file of links ({', '.join(EDGE_FILE_NAMES[:3])})")
    return _read_npz(archives[0], text) if archives else _read_edge_file(links[0], text, on_error)


def _read_npz(path: Path, text: str) -> NodeGraph:
    return build_node_graph(read_graph_npz(path), str(path), text)


def read_graph_npz(path: Path) -> dict[str, Any]:
    """Read the fields of a graph from a .npz file.

    Raises:
        NearfarError: the file is not a valid archive of arrays.
        UsageError: the file has no edge_index.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            fields: dict[str, Any] = {str(_OTHER_NAMES.get(name, name)): archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as e:
        raise NearfarError(f"{path} cannot be read as arrays: {str(e).splitlines()[0]}") from e
    if "edge_index" not in fields:
        raise UsageError(f"{path} has no edge_index; it has {', '.join(fields) or 'nothing'}")
    return fields


def _read_edge_file(file: Path, text: str, on_error: str) -> NodeGraph:
    fields, skipped = read_edge_list(file, on_error)
    return build_node_graph(fields, str(file), text, skipped)


def _load_karate() -> NodeGraph:
    """Load Zachary's karate club.

    The graph has 34 members and links between members who met outside the club. The label of a member is the
    faction that the member joined when the club split.
    """
    import networkx as nx

    club: Any = nx.karate_club_graph()
    y = [club.nodes[i]["club"] for i in club.nodes]
    return build_node_graph({**read_graph_fields(club), "y": np.array(y)}, "karate")
