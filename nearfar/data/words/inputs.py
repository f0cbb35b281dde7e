"""Loading of running text for training, and of words of a trained vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.errors import suggest_similar_names
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.named_samples import VocabularySubset, get_vocabulary
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.words.dataset import Corpus
from nearfar.data.words.load import load_words


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Input loader for words.

    Training data are a corpus. For a trained model, all data are its vocabulary, and queries are words of it.
    """

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        return load_words(spec, min_count=config.min_count)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load the words of a text that the model knows.

        The most frequent words of the training come first.
        """
        found = load_words(spec, min_count=1).train
        return [self._to_words(sorted((w for w in found.words if w in self.word_ids), key=lambda w: self.word_ids[w]))]

    def adapt(self, samples: Any) -> list[Any]:
        """Convert words or a corpus of the same vocabulary."""
        if isinstance(samples, (Corpus, VocabularySubset)):
            return [samples]
        words = [samples] if isinstance(samples, str) else list(samples)
        for word in words:
            if not isinstance(word, str) or word.lower() not in self.word_ids:
                close = suggest_similar_names(str(word), list(self.word_ids)) if len(self.word_ids) < 20_000 else ""
                raise UsageError(f"{word!r} is not in this run's vocabulary of {len(self.word_ids):,} words.{close}")
        return [self._to_words([word.lower() for word in words])]

    @property
    def word_ids(self) -> dict[str, int]:
        """Return the index of each word."""
        assert self.tokenizer is not None
        return get_vocabulary(self.tokenizer)

    def _to_words(self, words: Sequence[str]) -> VocabularySubset:
        return VocabularySubset(tuple(words), np.array([self.word_ids[w] for w in words], dtype=np.int64), source=f"{len(words)} words")
