"""Loading of graphs for walks from a user's data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.graphs.edge_lists import EDGE_FILE_NAMES
from nearfar.data.walks.dataset import WalkGraph, build_walk_graph
from nearfar.data.walks.readers import read_adjacency_matrix, read_edge_lines, read_mat_file, read_networkx_graph, read_npz_links

BUILTIN_GRAPHS = {"miserables": "les_miserables_graph", "karate": "karate_club_graph"}
"""networkx function of each built-in graph."""


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
        return read_adjacency_matrix(spec, "sparse matrix")
    if hasattr(spec, "nodes") and hasattr(spec, "edges"):
        return read_networkx_graph(spec, "networkx graph")
    raise UsageError(
        f"cannot read a graph from a {type(spec).__name__}: give a name, a file of edges, a .npz, a .mat, a networkx graph, a scipy "
        "sparse matrix, or an edge_index tensor (2, edges)"
    )


def _load_by_name(text: str, on_error: str) -> WalkGraph:
    if text in BUILTIN_GRAPHS:
        return read_networkx_graph(getattr(_import_networkx(), BUILTIN_GRAPHS[text])(), text)
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, BUILTIN_GRAPHS, "graph")
    if path.is_dir():
        found = [*path.glob("*.mat"), *path.glob("*.npz"), *(path / name for name in EDGE_FILE_NAMES if (path / name).is_file())]
        if len(found) != 1:
            raise UsageError(f"the folder {path} has {len(found)} graphs (.mat, .npz, {', '.join(EDGE_FILE_NAMES[:3])}, …): name one file")
        path = found[0]
    if path.suffix == ".npz":
        return read_npz_links(path, text)
    return read_mat_file(path, text) if path.suffix == ".mat" else read_edge_lines(path, text, on_error)


def _import_networkx() -> Any:
    import networkx

    return networkx
