"""Readers for sets of small graphs in text files, and for their folds.

One file, as distributed by the authors of GIN. It holds the number of graphs, then for each graph a line

    n l                     number of nodes, label of the graph

and for each of its nodes, counted from 0, a line

    t m j1 … jm [a1 … af]   label, number of neighbors, the neighbors, and optional attributes of the node

A TUDataset folder holds NAME_A.txt (two nodes per line, counted from 1 over all graphs),
NAME_graph_indicator.txt (the graph of each node), and optionally NAME_graph_labels.txt, NAME_node_labels.txt
and NAME_node_attributes.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.data.graphs.edge_lists import read_table_rows


@dataclass(frozen=True)
class GraphArrays:
    """Arrays of small graphs, with the nodes of all graphs concatenated."""

    edge_index: np.ndarray
    """(2, m) node numbers, counted over all graphs."""
    graph_sizes: np.ndarray
    """Number of nodes of each graph."""
    node_labels: np.ndarray | None = None
    """Integer label of each node."""
    node_attributes: np.ndarray | None = None
    """(nodes, f) numbers."""
    graph_labels: np.ndarray | None = None
    """Class of each graph."""


def read_gin_file(path: Path) -> GraphArrays:
    """Read small graphs from one file in the GIN format.

    Raises:
        NearfarError: the file is not in this format. The message names the line.
    """
    lines = read_table_rows(path)
    (count,) = _parse_integers(path, *_next_line(lines, path), 1)
    size, labels, tags, ends, attributes = [], [], [], [], []
    for _ in range(count):
        n, label = _parse_integers(path, *_next_line(lines, path), 2)
        first = len(tags)
        for i in range(n):
            number, row = _next_line(lines, path)
            tag, degree = _parse_integers(path, number, row[:2], 2)
            neighbours = _parse_integers(path, number, row[2 : 2 + degree], degree)
            if any(not 0 <= j < n for j in neighbours):
                raise NearfarError(f"{path}, line {number}: a neighbor is not one of the graph's nodes 0 … {n - 1}")
            tags.append(tag)
            ends += [(first + i, first + j) for j in neighbours]
            attributes.append(_parse_floats(path, number, row[2 + degree :], len(attributes[0]) if attributes else None))
        size.append(n)
        labels.append(label)
    for number, _ in lines:
        raise NearfarError(f"{path}, line {number}: more lines than {count} graphs have")
    links = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    return GraphArrays(links, np.array(size), np.array(tags), np.array(attributes) if any(attributes) else None, np.array(labels))


def read_tudataset_folder(folder: Path, name: str) -> GraphArrays:
    """Read small graphs from a TUDataset folder.

    Args:
        folder: folder of the files.
        name: common prefix of the file names.

    Raises:
        NearfarError: a file is missing or inconsistent.
    """
    graph = _read_column(folder / f"{name}_graph_indicator.txt")
    if (np.diff(graph) < 0).any() or not len(graph) or graph[0] < 1:
        raise NearfarError(f"{folder / f'{name}_graph_indicator.txt'}: graphs must be counted from 1, each with consecutive nodes")
    file = folder / f"{name}_A.txt"
    links = np.array([_parse_integers(file, number, row, 2) for number, row in read_table_rows(file)], dtype=np.int64).reshape(-1, 2).T - 1
    outside = ((links < 0) | (links >= len(graph))).any(0)
    if outside.any() or (graph[links[0]] != graph[links[1]]).any():
        wrong = int((outside if outside.any() else graph[links[0]] != graph[links[1]]).argmax())
        raise NearfarError(f"{file}: link {wrong + 1} does not connect two nodes of one graph")
    values = folder / f"{name}_node_attributes.txt"
    return GraphArrays(
        links,
        np.bincount(graph)[1:],
        _read_optional_column(folder / f"{name}_node_labels.txt", len(graph)),
        _read_table(values, len(graph)) if values.is_file() else None,
        _read_optional_column(folder / f"{name}_graph_labels.txt", int(graph.max())),
    )


def read_gin_folds(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Read the (training, test) graph numbers of each fold.

    The files are 10fold_idx/train_idx-1.txt, 10fold_idx/test_idx-1.txt, …
    """
    tests = sorted((folder / "10fold_idx").glob("test_idx-*.txt"), key=lambda p: int(re.findall(r"\d+", p.name)[-1]))
    if not tests:
        raise NearfarError(f"{folder} has no folds: 10fold_idx/test_idx-1.txt, …")
    return [(_read_column(path.with_name(path.name.replace("test", "train"))), _read_column(path)) for path in tests]


def _next_line(lines: Iterator[tuple[int, list[str]]], path: Path) -> tuple[int, list[str]]:
    found = next(lines, None)
    if found is None:
        raise NearfarError(f"{path} ends too early: a graph is not complete")
    return found


def _parse_integers(path: Path, number: int, row: list[str], count: int) -> list[int]:
    try:
        values = [int(value) for value in row]
    except ValueError as e:
        raise NearfarError(f"{path}, line {number}: {e}") from e
    if len(values) != count:
        raise NearfarError(f"{path}, line {number}: {len(values)} whole numbers where {count} were expected")
    return values


def _parse_floats(path: Path, number: int, row: list[str], count: int | None) -> list[float]:
    try:
        values = [float(value) for value in row]
    except ValueError as e:
        raise NearfarError(f"{path}, line {number}: {e}") from e
    if count not in (None, len(values)) or not np.isfinite(values).all():
        raise NearfarError(f"{path}, line {number}: {len(values)} attributes where {count} finite ones were expected")
    return values


def _read_column(path: Path) -> np.ndarray:
    if not path.is_file():
        raise NearfarError(f"there is no file {path}")
    return np.array([_parse_integers(path, number, row, 1)[0] for number, row in read_table_rows(path)], dtype=np.int64)


def _read_optional_column(path: Path, count: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    values = _read_column(path)
    if len(values) != count:
        raise NearfarError(f"{path} has {len(values):,} lines where {count:,} were expected")
    return values


def _read_table(path: Path, count: int) -> np.ndarray:
    rows: list[list[float]] = []
    for number, row in read_table_rows(path):
        rows.append(_parse_floats(path, number, row, len(rows[0]) if rows else None))
    if len(rows) != count:
        raise NearfarError(f"{path} has {len(rows):,} lines where {count:,} were expected")
    return np.array(rows, dtype=np.float32)
