"""A graph to walk on, and nodes of a trained table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Run, Sizes
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.names import Words, named
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.walks.dataset import Graph, open_edges


@dataclass(frozen=True)
class WalkInputs(Inputs):
    """Opened as a graph to train on; there is no test split. What a user asks a trained net for are names of nodes."""

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        return Splits(open_edges(spec, run.on_error), None)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """The nodes of a graph, all of which the net must know."""
        return self.accept(open_edges(spec, run.on_error).nodes)

    def accept(self, what: Any) -> list[Any]:
        """A node's name, a list of names, or a graph of the same nodes."""
        if isinstance(what, Words):
            return [what]
        assert self.tokenizer is not None
        return [named(what.nodes if isinstance(what, Graph) else what, self.tokenizer, "node")]
