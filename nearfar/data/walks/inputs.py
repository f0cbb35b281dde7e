"""Loading of graphs for random walks, and of nodes of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Sizes, TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.named_samples import VocabularySubset, select_names
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.walks.dataset import WalkGraph
from nearfar.data.walks.load import load_walks


@dataclass(frozen=True)
class WalkInputs(Inputs):
    """Input loader for graphs to walk on.

    There is no test split. Training data are a graph. Queries to a trained model are names of nodes.
    """

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        return Splits(load_walks(spec, config.on_error), None)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load the nodes of a graph.

        The model must know all of them.
        """
        return self.adapt(load_walks(spec, config.on_error).nodes)

    def adapt(self, samples: Any) -> list[Any]:
        """Convert node names or a graph of the same nodes."""
        if isinstance(samples, VocabularySubset):
            return [samples]
        assert self.tokenizer is not None
        return [select_names(samples.nodes if isinstance(samples, WalkGraph) else samples, self.tokenizer, "node")]
