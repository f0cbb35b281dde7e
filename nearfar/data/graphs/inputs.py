"""Loading of nodes and small graphs with the number of features of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.graphs.dataset import Graphs, Nodes
from nearfar.data.graphs.load import load_all_graphs, load_graphs
from nearfar.data.graphs.load_nodes import load_node_graph, load_nodes

NodesOrGraphsT = TypeVar("NodesOrGraphsT", Nodes, Graphs)


@dataclass(frozen=True)
class NodeInputs(Inputs):
    """Input loader for the nodes of one graph."""

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        found = load_nodes(spec, seed=config.seed, test_ids=test_ids, on_error=config.on_error)
        _check_features(found.train, self.sizes)
        return found

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        return self.adapt(spec if isinstance(spec, Nodes) else load_node_graph(spec, config.on_error).nodes)

    def adapt(self, samples: Any) -> list[Any]:
        return [_check_features(samples if isinstance(samples, Nodes) else load_node_graph(samples).nodes, self.sizes)]


@dataclass(frozen=True)
class GraphInputs(Inputs):
    """Input loader for small graphs."""

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        found = load_graphs(spec, seed=config.seed, test_ids=test_ids, node_label_values=self._node_label_values)
        _check_features(found.train, self.sizes)
        return found

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        return self.adapt(spec)

    def adapt(self, samples: Any) -> list[Any]:
        return [_check_features(samples if isinstance(samples, Graphs) else load_all_graphs(samples, self._node_label_values), self.sizes)]

    @property
    def _node_label_values(self) -> tuple[int, ...] | None:
        return None if self.sizes is None or "tags" not in self.sizes else tuple(self.sizes["tags"])


def _check_features(data: NodesOrGraphsT, sizes: Sizes | None) -> NodesOrGraphsT:
    if sizes is not None and data.store.num_features != sizes["node_features"]:
        raise UsageError(
            f"the nodes of {data.source} have {data.store.num_features} features, and this model was trained on {sizes['node_features']}"
        )
    return data
