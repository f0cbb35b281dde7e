"""Running text to learn words from, and words of a trained vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import Run, Sizes, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.names import Words, numbers
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.words.dataset import Corpus, open_corpus


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Opened as a corpus to train on; of a trained net, everything is its vocabulary, and what a user asks for are words of it."""

    reads = ("min_count",)

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        return open_corpus(spec, min_count=run.min_count)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """The words of a text that the net knows, most frequent in its training first."""
        found = open_corpus(spec, min_count=1).train
        return [self._known(sorted((w for w in found.words if w in self.number), key=lambda w: self.number[w]))]

    def accept(self, what: Any) -> list[Any]:
        """A word, a list of words, or a corpus of the same vocabulary."""
        if isinstance(what, (Corpus, Words)):
            return [what]
        words = [what] if isinstance(what, str) else list(what)
        for word in words:
            if not isinstance(word, str) or word.lower() not in self.number:
                close = did_you_mean(str(word), list(self.number)) if len(self.number) < 20_000 else ""
                raise UsageError(f"{word!r} is no word of this run's vocabulary of {len(self.number):,}.{close}")
        return [self._known([word.lower() for word in words])]

    @property
    def number(self) -> dict[str, int]:
        """The position of each word."""
        assert self.tokenizer is not None
        return numbers(self.tokenizer)

    def _known(self, words: Sequence[str]) -> Words:
        return Words(tuple(words), np.array([self.number[w] for w in words], dtype=np.int64), source=f"{len(words)} words")
