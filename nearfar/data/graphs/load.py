"""Loading of many small graphs from text files of graph benchmarks or from objects in memory.

Node features come from these sources: an integer label of each node, such as the kind of an atom, becomes a
one-hot vector; attributes are used as numbers; a graph may have both. If all labels are the same and there
are no attributes, every node has the feature 1.

Two text formats are supported (see nearfar/data/graphs/readers.py): one file for all graphs, as distributed
by the authors of GIN, and TUDataset folders (NAME_A.txt, NAME_graph_indicator.txt, …).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import encode_labels
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.graphs.dataset import Graphs, as_edge_index, as_node_features, build_graph_store
from nearfar.data.graphs.load_nodes import count_nodes, read_graph_fields
from nearfar.data.graphs.readers import GraphArrays, read_gin_file, read_tudataset_folder


def load_graphs(
    spec: Any, *, seed: int = 0, test_ids: Sequence[int] | None = None, node_label_values: tuple[int, ...] | None = None
) -> Splits:
    """Load small graphs as a training and a test split.

    Args:
        spec: 'atlas'; a text file or folder; or a list of torch-geometric `Data` objects, dicts of arrays or
            networkx graphs.
        seed: random seed of the split, which holds out one in five graphs of each class.
        test_ids: test rows stored by an earlier run.
        node_label_values: node labels that a trained model knows.

    Raises:
        UsageError: there are fewer than two graphs.
    """
    data = load_all_graphs(spec, node_label_values)
    if len(data) < 2:
        raise UsageError(f"{data.source} has {len(data)} graph{'' if len(data) == 1 else 's'} to learn from; at least 2 are needed")
    return split_train_test(Splits(data, None), seed, test_ids)


def load_all_graphs(spec: Any, node_label_values: tuple[int, ...] | None = None) -> Graphs:
    """Load all graphs of a source, in the order of the source."""
    if isinstance(spec, (str, os.PathLike)):
        text = os.fspath(spec)
        return _load_atlas() if text == "atlas" else build_graphs(_read_path(text), text, node_label_values)
    if not hasattr(spec, "__len__") or not hasattr(spec, "__getitem__"):
        raise UsageError(f"cannot read graphs from a {type(spec).__name__}: give a name, a path, or a list of graphs")
    what = f"{type(spec).__name__} of {len(spec)} graphs"
    return build_graphs(_convert_objects(spec, what), what, node_label_values)


def build_graphs(arrays: GraphArrays, source: str, node_label_values: tuple[int, ...] | None = None) -> Graphs:
    """Build a dataset from the arrays of small graphs.

    Raises:
        UsageError: there are no graphs, or a graph has no nodes.
    """
    if not len(arrays.graph_sizes) or not arrays.graph_sizes.all():
        raise UsageError(
            f"{source}: "
            f"{'there are no graphs' if not len(arrays.graph_sizes) else f'graph {int(arrays.graph_sizes.argmin())} has no nodes'}"
        )
    n = int(arrays.graph_sizes.sum())
    parts, known = [], node_label_values
    if arrays.node_labels is not None:
        known = tuple(int(t) for t in np.unique(arrays.node_labels)) if node_label_values is None else node_label_values
        parts += [] if len(known) < 2 and arrays.node_attributes is not None else [_one_hot(arrays.node_labels, known, source)]
    parts += [] if arrays.node_attributes is None else [arrays.node_attributes.astype(np.float32)]
    x = np.concatenate(parts, 1) if parts else np.ones((n, 1), dtype=np.float32)
    (labels,), classes = encode_labels(arrays.graph_labels)
    store = build_graph_store(x, arrays.edge_index, np.concatenate([[0], np.cumsum(arrays.graph_sizes)]), node_label_values=known or ())
    return Graphs(store, np.arange(len(arrays.graph_sizes)), labels, classes, source)


def _one_hot(node_labels: np.ndarray, known_labels: tuple[int, ...], source: str) -> np.ndarray:
    hot = node_labels[:, None] == np.array(known_labels)
    strange = ~hot.any(1)
    if strange.any():
        raise UsageError(
            f"{source}: the node label {node_labels[strange.argmax()]} is not one of those that this model was trained on: {known_labels}"
        )
    return hot.astype(np.float32)


def _read_path(text: str) -> GraphArrays:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, ["atlas"], "graphs")
    if path.is_file():
        return read_gin_file(path)
    adjacency, texts = sorted(path.glob("*_A.txt")), sorted(p for p in path.glob("*.txt") if not p.name.lower().startswith("readme"))
    if len(adjacency) == 1:
        return read_tudataset_folder(path, adjacency[0].name.removesuffix("_A.txt"))
    if not adjacency and len(texts) == 1:
        return read_gin_file(texts[0])
    raise UsageError(
        f"the folder {path} must hold one set of graphs: one text file, or TUDataset's NAME_A.txt, NAME_graph_indicator.txt, …"
    )


def _convert_objects(objects: Sequence[Any], description: str) -> GraphArrays:
    graphs = [read_graph_fields(objects[i]) for i in range(len(objects))]
    where = [f"graph {i} of the {description}" for i in range(len(graphs))]
    size = np.array([count_nodes(g, w) for g, w in zip(graphs, where, strict=True)], dtype=np.int64)
    first = np.cumsum(size) - size
    links = [as_edge_index(g["edge_index"], n, w) + f for g, n, w, f in zip(graphs, size.tolist(), where, first, strict=True)]
    attributes = _stack_attributes([g.get("x") for g in graphs], size, where)
    labels = [None if g.get("y") is None else _read_graph_label(g["y"], w) for g, w in zip(graphs, where, strict=True)]
    known = all(label is not None for label in labels)
    return GraphArrays(np.concatenate(links, 1), size, None, attributes, np.array(labels) if known else None)


def _stack_attributes(tables: list[Any], size: np.ndarray, where: list[str]) -> np.ndarray | None:
    if all(x is None for x in tables):
        return None
    found = [
        np.asarray(as_node_features(np.zeros((0, 0)) if x is None else x, n, w))
        for x, n, w in zip(tables, size.tolist(), where, strict=True)
    ]
    for table, w in zip(found, where, strict=True):
        if table.shape[1] != found[0].shape[1]:
            raise UsageError(f"{w} has {table.shape[1]} features per node, the first graph {found[0].shape[1]}")
    return np.concatenate(found)


def _read_graph_label(y: Any, what: str) -> int | str:
    value = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if value.size != 1 or value.dtype.kind not in "biuU":
        raise UsageError(f"{what}: its label y must be one whole number or text; got {value.dtype} of the shape {value.shape}")
    return value.reshape(()).item()


def _load_atlas() -> Graphs:
    """Load all connected graphs of 3 to 7 nodes, labeled by diameter.

    The diameter is the distance between the two nodes that are farthest apart.
    """
    import networkx as nx

    graphs: list[Any] = [g for g in nx.graph_atlas_g() if len(g) > 2 and nx.is_connected(g)]
    far = [min(nx.diameter(g), 4) for g in graphs]
    labels = np.array([f"{min(max(d, 2), 4)}{' or less' if d <= 2 else ' or more' if d == 4 else ''}" for d in far])
    return build_graphs(replace(_convert_objects(graphs, "atlas"), graph_labels=labels), "atlas")
