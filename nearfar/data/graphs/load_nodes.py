"""One whole graph, from whatever a user has it in: a file of arrays, a list of links, an object in memory.

A `.npz` file, a dict or a torch-geometric `Data` object has these fields:

    edge_index    (2, m) node numbers; `links` is another name for it
    x             (n, f) features of the nodes; or x_indptr, x_indices, x_data, x_shape, the same by compressed rows; or none
    y             (n,) labels, -1 where one is not known; `labels` is another name; or none
    names         (n,) texts, what the nodes are called; or none: their numbers
    weights       (m,) numbers greater than 0, for walks (see `nearfar.data.walks.dataset`); `edge_weight` is another name; or none
    train, test   (n,) booleans: a split of its own, without a node in both; `train_mask` and `test_mask` are other names; or none

A list of links is a text file (see `nearfar.data.graphs.link_files`).

Features that are nowhere negative (words, counts) are divided by their sum, node by node. Nodes without features are told apart by
their number: one-hot.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags, eye

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.arrays import number_classes
from nearfar.data.common.missing import missing
from nearfar.data.common.splits import Splits, divide
from nearfar.data.graphs.dataset import SPARSE, Nodes, as_features, as_links, store_of
from nearfar.data.graphs.link_files import LINK_FILES, read_links

_OTHER_NAMES = {"links": "edge_index", "labels": "y", "edge_weight": "weights", "train_mask": "train", "test_mask": "test"}
_FIELDS = ("edge_index", "x", "x_indptr", "x_indices", "x_data", "x_shape", "y", "names", "train", "test", "num_nodes")


@dataclass(frozen=True)
class NodeGraph:
    """All nodes of a graph, with labels where every node has one; those that have one; and the split that the data bring."""

    every: Nodes
    labelled: Nodes
    """All nodes, where none has a label."""
    train: np.ndarray | None = None
    test: np.ndarray | None = None
    """Positions in `labelled`."""


def open_nodes(spec: Any, *, seed: int = 0, split: Sequence[int] | None = None, on_error: str = "stop") -> Splits:
    """Open a graph as a training and a test split of its labelled nodes. Both see the whole graph, whose other nodes have no label.

    spec      'karate'; a .npz; a file of links; a folder with either; a dict of arrays; a torch-geometric `Data`; a networkx graph
    seed      names the split, where the data bring none: one in five of each class
    split     test rows stored by an earlier run
    on_error  "stop" at a broken line of a text file and name it, or "skip" it
    """
    found = read_nodes(spec, on_error)
    if len(found.labelled) < 2:
        raise UsageError(f"{found.every.source} has {len(found.labelled)} nodes to learn from; at least 2 are needed")
    if found.train is not None and found.test is not None:
        if empty := [name for name, nodes in (("train", found.train), ("test", found.test)) if not len(nodes)]:
            raise UsageError(f"{found.every.source}: the mask {empty[0]!r} names no node. Mark some, or leave the masks out")
        both = np.intersect1d(found.train, found.test)
        if len(both):
            counted = "1 node is" if len(both) == 1 else f"{len(both):,} nodes are"
            raise UsageError(
                f"{found.every.source}: {counted} for training and for testing, the first: {found.labelled.name(int(both[0]))}. "
                "Take each out of one of the masks"
            )
        return divide(Splits(found.labelled.subset(found.train), found.labelled.subset(found.test)), seed, split)
    return divide(Splits(found.labelled, None), seed, split)


def read_nodes(spec: Any, on_error: str = "stop") -> NodeGraph:
    """A graph with all its nodes."""
    if isinstance(spec, (str, os.PathLike)):
        return _karate() if os.fspath(spec) == "karate" else _read_path(os.fspath(spec), on_error)
    return graph_of(fields_of(spec), f"{type(spec).__name__} of nodes")


def fields_of(thing: Any) -> dict[str, Any]:
    """The fields of a graph that is held in memory: a mapping, an object that has them as attributes, a networkx graph."""
    if hasattr(thing, "adjacency") and hasattr(thing, "nodes"):
        import networkx as nx

        number = {node: i for i, node in enumerate(thing.nodes)}
        links = [(number[a], number[b]) for a, b in thing.edges()]
        labels = nx.get_node_attributes(thing, "y")
        found = {"edge_index": np.array(links, dtype=np.int64).reshape(-1, 2).T, "num_nodes": len(number)}
        return found | ({"y": [labels[node] for node in thing.nodes]} if len(labels) == len(number) else {})
    get = thing.get if isinstance(thing, Mapping) else lambda name: getattr(thing, name, None)
    found = {_OTHER_NAMES.get(name, name): get(name) for name in (*_FIELDS, *_OTHER_NAMES) if get(name) is not None}
    if "edge_index" not in found:
        raise UsageError(
            f"cannot read a graph from a {type(thing).__name__} without edge_index: give a name, a path, a dict of arrays, "
            "a torch-geometric Data object or a networkx graph"
        )
    return found


def graph_of(fields: Mapping[str, Any], what: str, source: str = "", skipped: tuple[str, ...] = ()) -> NodeGraph:
    """The graph that some fields describe (see above). `what`: where they are from, for messages; `source`: what the user asked for;
    `skipped`: what was left out of it."""
    n = count_nodes(fields, what)
    links = as_links(fields["edge_index"], n, what)
    store = store_of(_features(fields, n, what), links, np.array([0, n]), names_of(fields, n, what))
    every = Nodes(store, np.arange(n), source=source or what, skipped=skipped)
    if fields.get("y") is None:
        return NodeGraph(every, every)
    ids, labels, classes = labels_of(fields, n, what)
    labelled = Nodes(store, ids, labels, classes, every.source, skipped)
    train, test = (_mask(fields, name, np.isin(np.arange(n), ids), what) for name in ("train", "test"))
    return NodeGraph(labelled if len(ids) == n else every, labelled, train, test)


def labels_of(fields: Mapping[str, Any], n: int, what: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The nodes that have a label, the position of each one's class, and the classes."""
    y = np.full(n, -1) if fields.get("y") is None else np.asarray(fields["y"])
    if y.shape not in ((n,), (n, 1)) or y.dtype.kind not in "biuU":
        raise UsageError(f"{what}: labels are one whole number or text for each of {n:,} nodes; these are {y.dtype} of the shape {y.shape}")
    y = y.reshape(n)
    known = np.nonzero(y != "" if y.dtype.kind == "U" else y.astype(np.int64) >= 0)[0]
    (labels,), classes = number_classes(y[known])
    assert labels is not None
    return known, labels, classes


def names_of(fields: Mapping[str, Any], n: int, what: str) -> tuple[str, ...]:
    """What the nodes are called; empty where they have numbers only."""
    if fields.get("names") is None:
        return ()
    names = fields["names"].tolist() if isinstance(fields["names"], np.ndarray) else list(fields["names"])
    if not all(isinstance(name, str) for name in names) or not len(names) == len(set(names)) == n:
        raise UsageError(f"{what}: names are different texts, one for each of {n:,} nodes; these are {str(names)[:80]}")
    return tuple(names)


def count_nodes(fields: Mapping[str, Any], what: str) -> int:
    """As many as there are features or labels of; without either, as the links name."""
    for name in ("num_nodes", "x_shape", "x", "y"):
        value = fields.get(name)
        if value is not None:
            return int(value) if name == "num_nodes" else int(value[0]) if name == "x_shape" else len(value)
    links = np.asarray(fields["edge_index"])
    if not links.size:
        raise UsageError(f"{what} has no nodes")
    return int(links.max()) + 1


def _features(fields: Mapping[str, Any], n: int, what: str) -> Any:
    if "x_data" in fields:
        try:
            x: Any = csr_matrix((fields["x_data"], fields["x_indices"], fields["x_indptr"]), shape=tuple(fields["x_shape"]))
            x.check_format(full_check=True)
        except (ValueError, KeyError, TypeError, IndexError) as e:
            raise UsageError(f"{what}: x_indptr, x_indices, x_data and x_shape are no matrix by compressed rows: {e}") from e
    elif fields.get("x") is not None:
        x = fields["x"]
    else:
        return csr_matrix(eye(n)).astype(np.float32)
    table = as_features(x, n, what)
    if isinstance(table, np.ndarray):
        return _by_sum(csr_matrix(table) if np.count_nonzero(table) < SPARSE * table.size else table)
    rows, columns = table.get_shape()
    return _by_sum(table if table.nnz < SPARSE * rows * columns else table.toarray())


def _by_sum(x: Any) -> Any:
    """Rows divided by their sum, where nothing is negative; a row of zeros stays one."""
    if (x.data if isinstance(x, csr_matrix) else x).min(initial=0) < 0:
        return x
    scale = 1 / np.maximum(np.asarray(x.sum(1), dtype=np.float32).ravel(), np.finfo(np.float32).tiny)
    return csr_matrix(diags(scale) @ x).astype(np.float32) if isinstance(x, csr_matrix) else x * scale[:, None]


def _mask(fields: Mapping[str, Any], name: str, known: np.ndarray, what: str) -> np.ndarray | None:
    if fields.get(name) is None:
        return None
    mask = np.asarray(fields[name])
    if mask.dtype != bool or mask.shape != known.shape:
        raise UsageError(f"{what}: {name!r} is one boolean for each of {len(known):,} nodes; it is {mask.dtype} of the shape {mask.shape}")
    if (mask & ~known).any():
        raise UsageError(f"{what}: {name!r} names node {int((mask & ~known).argmax())}, which has no label")
    return np.nonzero(mask[known])[0]


def _read_path(text: str, on_error: str) -> NodeGraph:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise missing(text, ["karate"], "graph")
    if path.is_file():
        return _read_npz(path, text) if path.suffix == ".npz" else _of_links(path, text, on_error)
    archives, links = sorted(path.glob("*.npz")), [path / name for name in LINK_FILES if (path / name).is_file()]
    if len(archives) + len(links) != 1:
        raise UsageError(f"the folder {path} must hold one graph: one .npz, or one file of links ({', '.join(LINK_FILES[:3])})")
    return _read_npz(archives[0], text) if archives else _of_links(links[0], text, on_error)


def _read_npz(path: Path, text: str) -> NodeGraph:
    return graph_of(read_arrays(path), str(path), text)


def read_arrays(path: Path) -> dict[str, Any]:
    """The fields of a graph in a .npz file, edge_index among them."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            fields: dict[str, Any] = {str(_OTHER_NAMES.get(name, name)): archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as e:
        raise NearfarError(f"{path} cannot be read as arrays: {str(e).splitlines()[0]}") from e
    if "edge_index" not in fields:
        raise UsageError(f"{path} has no edge_index; it has {', '.join(fields) or 'nothing'}")
    return fields


def _of_links(file: Path, text: str, on_error: str) -> NodeGraph:
    fields, skipped = read_links(file, on_error)
    return graph_of(fields, str(file), text, skipped)


def _karate() -> NodeGraph:
    """Zachary's karate club: 34 members, who of them met outside of it, and which half each joined when it split."""
    import networkx as nx

    club: Any = nx.karate_club_graph()
    y = [club.nodes[i]["club"] for i in club.nodes]
    return graph_of({**fields_of(club), "y": np.array(y)}, "karate")
