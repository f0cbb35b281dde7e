"""Sets of small graphs as text: in one file, or in a folder of TUDataset; and the folds that come with them.

One file, as the authors of GIN hand them out: the number of graphs, then for each graph a line

    n l                     its number of nodes, its label

and for each of its nodes, counted from 0, a line

    t m j1 … jm [a1 … af]   its label, how many neighbours it has, which ones, and its attributes, if any

A folder of TUDataset: NAME_A.txt (two nodes a line, counted from 1 over all graphs), NAME_graph_indicator.txt (the graph of each
node), and NAME_graph_labels.txt, NAME_node_labels.txt, NAME_node_attributes.txt where there are such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.data.graphs.link_files import table_lines


@dataclass(frozen=True)
class Found:
    """What a reader of small graphs gives: nodes of all graphs end to end."""

    links: np.ndarray
    """(2, m) node numbers, counted over all graphs."""
    size: np.ndarray
    """How many nodes each graph has."""
    tags: np.ndarray | None = None
    """A whole number for each node."""
    attributes: np.ndarray | None = None
    """(nodes, f) numbers."""
    labels: np.ndarray | None = None
    """A class for each graph."""


def read_one_file(path: Path) -> Found:
    lines = table_lines(path)
    (count,) = _whole(path, *_next(lines, path), 1)
    size, labels, tags, ends, attributes = [], [], [], [], []
    for _ in range(count):
        n, label = _whole(path, *_next(lines, path), 2)
        first = len(tags)
        for i in range(n):
            number, row = _next(lines, path)
            tag, degree = _whole(path, number, row[:2], 2)
            neighbours = _whole(path, number, row[2 : 2 + degree], degree)
            if any(not 0 <= j < n for j in neighbours):
                raise NearfarError(f"{path}, line {number}: a neighbour is none of the graph's nodes 0 … {n - 1}")
            tags.append(tag)
            ends += [(first + i, first + j) for j in neighbours]
            attributes.append(_reals(path, number, row[2 + degree :], len(attributes[0]) if attributes else None))
        size.append(n)
        labels.append(label)
    for number, _ in lines:
        raise NearfarError(f"{path}, line {number}: more lines than {count} graphs have")
    links = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    return Found(links, np.array(size), np.array(tags), np.array(attributes) if any(attributes) else None, np.array(labels))


def read_tu_folder(folder: Path, name: str) -> Found:
    graph = _column(folder / f"{name}_graph_indicator.txt")
    if (np.diff(graph) < 0).any() or not len(graph) or graph[0] < 1:
        raise NearfarError(f"{folder / f'{name}_graph_indicator.txt'}: graphs are counted from 1, and their nodes stand together")
    file = folder / f"{name}_A.txt"
    links = np.array([_whole(file, number, row, 2) for number, row in table_lines(file)], dtype=np.int64).reshape(-1, 2).T - 1
    outside = ((links < 0) | (links >= len(graph))).any(0)
    if outside.any() or (graph[links[0]] != graph[links[1]]).any():
        wrong = int((outside if outside.any() else graph[links[0]] != graph[links[1]]).argmax())
        raise NearfarError(f"{file}: its link number {wrong + 1} is not between two nodes of one graph")
    values = folder / f"{name}_node_attributes.txt"
    return Found(
        links,
        np.bincount(graph)[1:],
        _optional(folder / f"{name}_node_labels.txt", len(graph)),
        _table(values, len(graph)) if values.is_file() else None,
        _optional(folder / f"{name}_graph_labels.txt", int(graph.max())),
    )


def read_folds(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """(training, test) graphs of each fold: 10fold_idx/train_idx-1.txt, test_idx-1.txt, …"""
    tests = sorted((folder / "10fold_idx").glob("test_idx-*.txt"), key=lambda p: int(re.findall(r"\d+", p.name)[-1]))
    if not tests:
        raise NearfarError(f"{folder} has no folds: 10fold_idx/test_idx-1.txt, …")
    return [(_column(path.with_name(path.name.replace("test", "train"))), _column(path)) for path in tests]


def _next(lines: Iterator[tuple[int, list[str]]], path: Path) -> tuple[int, list[str]]:
    found = next(lines, None)
    if found is None:
        raise NearfarError(f"{path} ends too early: a graph is not complete")
    return found


def _whole(path: Path, number: int, row: list[str], count: int) -> list[int]:
    try:
        values = [int(value) for value in row]
    except ValueError as e:
        raise NearfarError(f"{path}, line {number}: {e}") from e
    if len(values) != count:
        raise NearfarError(f"{path}, line {number}: {len(values)} whole numbers where {count} were expected")
    return values


def _reals(path: Path, number: int, row: list[str], count: int | None) -> list[float]:
    try:
        values = [float(value) for value in row]
    except ValueError as e:
        raise NearfarError(f"{path}, line {number}: {e}") from e
    if count not in (None, len(values)) or not np.isfinite(values).all():
        raise NearfarError(f"{path}, line {number}: {len(values)} attributes where {count} finite ones were expected")
    return values


def _column(path: Path) -> np.ndarray:
    if not path.is_file():
        raise NearfarError(f"there is no file {path}")
    return np.array([_whole(path, number, row, 1)[0] for number, row in table_lines(path)], dtype=np.int64)


def _optional(path: Path, count: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    values = _column(path)
    if len(values) != count:
        raise NearfarError(f"{path} has {len(values):,} lines where {count:,} were expected")
    return values


def _table(path: Path, count: int) -> np.ndarray:
    rows: list[list[float]] = []
    for number, row in table_lines(path):
        rows.append(_reals(path, number, row, len(rows[0]) if rows else None))
    if len(rows) != count:
        raise NearfarError(f"{path} has {len(rows):,} lines where {count:,} were expected")
    return np.array(rows, dtype=np.float32)
