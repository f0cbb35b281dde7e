"""Many small graphs, from whatever a user has them in: text files of graph benchmarks, or objects in memory.

Nodes are described by a whole number each, a label such as the kind of an atom, which becomes one-hot; by numbers of their own
(attributes); by both; or, where all labels are the same and there are no attributes, by a 1.

Two kinds of text are read (nearfar/data/graphs/readers.py): one file for all graphs, as the authors of GIN hand them out, and the folders
of TUDataset (NAME_A.txt, NAME_graph_indicator.txt, …).
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
from nearfar.data.common.arrays import number_classes
from nearfar.data.common.missing import missing
from nearfar.data.common.splits import Splits, divide
from nearfar.data.graphs.dataset import Graphs, as_features, as_links, store_of
from nearfar.data.graphs.load_nodes import count_nodes, fields_of
from nearfar.data.graphs.readers import Found, read_one_file, read_tu_folder


def open_graphs(spec: Any, *, seed: int = 0, split: Sequence[int] | None = None, tags: tuple[int, ...] | None = None) -> Splits:
    """Open small graphs as a training and a test split.

    spec   'atlas'; a file or folder of text; a list of torch-geometric `Data` objects, of dicts of arrays or of networkx graphs
    seed   names the split: one in five of each class
    split  test rows stored by an earlier run
    tags   the labels of nodes that a net knows
    """
    data = read_graphs(spec, tags)
    if len(data) < 2:
        raise UsageError(f"{data.source} has {len(data)} graph{'' if len(data) == 1 else 's'} to learn from; at least 2 are needed")
    return divide(Splits(data, None), seed, split)


def read_graphs(spec: Any, tags: tuple[int, ...] | None = None) -> Graphs:
    """All graphs there are, in the order of the source."""
    if isinstance(spec, (str, os.PathLike)):
        text = os.fspath(spec)
        return _atlas() if text == "atlas" else graphs_of(_read_path(text), text, tags)
    if not hasattr(spec, "__len__") or not hasattr(spec, "__getitem__"):
        raise UsageError(f"cannot read graphs from a {type(spec).__name__}: give a name, a path, or a list of graphs")
    what = f"{type(spec).__name__} of {len(spec)} graphs"
    return graphs_of(_of_objects(spec, what), what, tags)


def graphs_of(found: Found, source: str, tags: tuple[int, ...] | None = None) -> Graphs:
    """The data set; an empty graph is an error."""
    if not len(found.size) or not found.size.all():
        raise UsageError(f"{source}: {'there are no graphs' if not len(found.size) else f'graph {int(found.size.argmin())} has no nodes'}")
    n = int(found.size.sum())
    parts, known = [], tags
    if found.tags is not None:
        known = tuple(int(t) for t in np.unique(found.tags)) if tags is None else tags
        parts += [] if len(known) < 2 and found.attributes is not None else [_one_hot(found.tags, known, source)]
    parts += [] if found.attributes is None else [found.attributes.astype(np.float32)]
    x = np.concatenate(parts, 1) if parts else np.ones((n, 1), dtype=np.float32)
    (labels,), classes = number_classes(found.labels)
    store = store_of(x, found.links, np.concatenate([[0], np.cumsum(found.size)]), tags=known or ())
    return Graphs(store, np.arange(len(found.size)), labels, classes, source)


def _one_hot(tags: np.ndarray, known: tuple[int, ...], source: str) -> np.ndarray:
    hot = tags[:, None] == np.array(known)
    strange = ~hot.any(1)
    if strange.any():
        raise UsageError(f"{source}: the node label {tags[strange.argmax()]} is none of those that this net was trained on: {known}")
    return hot.astype(np.float32)


def _read_path(text: str) -> Found:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise missing(text, ["atlas"], "graphs")
    if path.is_file():
        return read_one_file(path)
    adjacency, texts = sorted(path.glob("*_A.txt")), sorted(p for p in path.glob("*.txt") if not p.name.lower().startswith("readme"))
    if len(adjacency) == 1:
        return read_tu_folder(path, adjacency[0].name.removesuffix("_A.txt"))
    if not adjacency and len(texts) == 1:
        return read_one_file(texts[0])
    raise UsageError(
        f"the folder {path} must hold one set of graphs: one text file, or TUDataset's NAME_A.txt, NAME_graph_indicator.txt, …"
    )


def _of_objects(items: Sequence[Any], what: str) -> Found:
    graphs = [fields_of(items[i]) for i in range(len(items))]
    where = [f"graph {i} of the {what}" for i in range(len(graphs))]
    size = np.array([count_nodes(g, w) for g, w in zip(graphs, where, strict=True)], dtype=np.int64)
    first = np.cumsum(size) - size
    links = [as_links(g["edge_index"], n, w) + f for g, n, w, f in zip(graphs, size.tolist(), where, first, strict=True)]
    attributes = _attributes([g.get("x") for g in graphs], size, where)
    labels = [None if g.get("y") is None else _label(g["y"], w) for g, w in zip(graphs, where, strict=True)]
    known = all(label is not None for label in labels)
    return Found(np.concatenate(links, 1), size, None, attributes, np.array(labels) if known else None)


def _attributes(tables: list[Any], size: np.ndarray, where: list[str]) -> np.ndarray | None:
    if all(x is None for x in tables):
        return None
    found = [
        np.asarray(as_features(np.zeros((0, 0)) if x is None else x, n, w)) for x, n, w in zip(tables, size.tolist(), where, strict=True)
    ]
    for table, w in zip(found, where, strict=True):
        if table.shape[1] != found[0].shape[1]:
            raise UsageError(f"{w} has {table.shape[1]} features a node, the first graph {found[0].shape[1]}")
    return np.concatenate(found)


def _label(y: Any, what: str) -> int | str:
    value = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if value.size != 1 or value.dtype.kind not in "biuU":
        raise UsageError(f"{what}: its label y is one whole number or text; it is {value.dtype} of the shape {value.shape}")
    return value.reshape(()).item()


def _atlas() -> Graphs:
    """All connected graphs of 3 to 7 nodes, by their diameter: how far the two nodes that are farthest apart are."""
    import networkx as nx

    graphs: list[Any] = [g for g in nx.graph_atlas_g() if len(g) > 2 and nx.is_connected(g)]
    far = [min(nx.diameter(g), 4) for g in graphs]
    labels = np.array([f"{min(max(d, 2), 4)}{' or less' if d <= 2 else ' or more' if d == 4 else ''}" for d in far])
    return graphs_of(replace(_of_objects(graphs, "atlas"), labels=labels), "atlas")
