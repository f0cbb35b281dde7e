"""Triples to learn entities from, and entities of a trained table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import Run, Sizes
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.names import Words, named, numbers
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.triples.dataset import Triples, open_triples


@dataclass(frozen=True)
class TripleInputs(Inputs):
    """Opened as triples to train on; of a trained net, everything are its entities, and what a user asks for are names of some."""

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        names = None
        if self.sizes is not None and self.tokenizer is not None:
            names = list(numbers(self.tokenizer)), self.sizes["relations"]
        return open_triples(spec, seed=run.seed, split=split, names=names, on_error=run.on_error)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """The entities that occur in the triples, in the order of the table."""
        found = self.open(spec, run).train
        ids = np.unique(found.known[:, [0, 2]])
        return [Words(tuple(found.entities[i] for i in ids), ids, source=found.source)]

    def accept(self, what: Any) -> list[Any]:
        """An entity's name, a list of names, or triples of the same entities."""
        if isinstance(what, (Triples, Words)):
            return [what]
        assert self.tokenizer is not None
        return [named(what, self.tokenizer, "entity")]
