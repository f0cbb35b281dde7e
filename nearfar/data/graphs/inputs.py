"""Nodes of one graph, and small graphs, with as many features as a net was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nearfar.core import Run, Sizes, UsageError
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.splits import Splits
from nearfar.data.graphs.dataset import Graphs, Nodes
from nearfar.data.graphs.load import open_graphs, read_graphs
from nearfar.data.graphs.load_nodes import open_nodes, read_nodes

Samples = TypeVar("Samples", Nodes, Graphs)


@dataclass(frozen=True)
class NodeInputs(Inputs):
    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        found = open_nodes(spec, seed=run.seed, split=split, on_error=run.on_error)
        _fits(found.train, self.sizes)
        return found

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        return self.accept(spec if isinstance(spec, Nodes) else read_nodes(spec, run.on_error).every)

    def accept(self, what: Any) -> list[Any]:
        return [_fits(what if isinstance(what, Nodes) else read_nodes(what).every, self.sizes)]


@dataclass(frozen=True)
class GraphInputs(Inputs):
    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        found = open_graphs(spec, seed=run.seed, split=split, tags=self._tags)
        _fits(found.train, self.sizes)
        return found

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        return self.accept(spec)

    def accept(self, what: Any) -> list[Any]:
        return [_fits(what if isinstance(what, Graphs) else read_graphs(what, self._tags), self.sizes)]

    @property
    def _tags(self) -> tuple[int, ...] | None:
        return None if self.sizes is None or "tags" not in self.sizes else tuple(self.sizes["tags"])


def _fits(data: Samples, sizes: Sizes | None) -> Samples:
    if sizes is not None and data.store.features != sizes["node_features"]:
        raise UsageError(
            f"the nodes of {data.source} have {data.store.features} features, and this net was trained on {sizes['node_features']}"
        )
    return data
