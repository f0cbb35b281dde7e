"""A graph to walk on, and nodes of a trained table."""

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
from nearfar.data.walks.dataset import WalkGraph, load_walks


@dataclass(frozen=True)
class WalkInputs(Inputs):
    """Opened as a graph to train on; there is no test split. What a user asks a trained net for are names of nodes."""

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        return Splits(load_walks(spec, config.on_error), None)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """The nodes of a graph, all of which the net must know."""
        return self.adapt(load_walks(spec, config.on_error).nodes)

    def adapt(self, samples: Any) -> list[Any]:
        """A node's name, a list of names, or a graph of the same nodes."""
        if isinstance(samples, VocabularySubset):
            return [samples]
        assert self.tokenizer is not None
        return [select_names(samples.nodes if isinstance(samples, WalkGraph) else samples, self.tokenizer, "node")]
