"""Inputs of the text modality.

Texts become token ids of a tokenizer that a run brings or trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearfar.core import Sizes, TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer, load_pretrained_tokenizer, train_tokenizer
from nearfar.data.text.dataset import Texts
from nearfar.data.text.load import load_all_texts, load_texts


@dataclass(frozen=True)
class TextInputs(Inputs):
    """Inputs of the text modality."""

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None
    """Tokenizer of a trained model.

    None uses the tokenizer that the run's settings name, or trains one on the training split.
    """

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        """Load texts as a training and a test split of token ids."""
        found = load_texts(spec, seed=config.seed, columns=config.columns, on_error=config.on_error, test_ids=test_ids)
        tokenizer = self.tokenizer or build_tokenizer(config, found.train)
        train = found.train.tokenize(tokenizer, config.max_length)
        if found.test is None:
            return Splits(train, None, found.test_ids)
        return Splits(train, _alike(found.test, train, config.max_length), found.test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load all texts as token ids, in the order of the source."""
        found = load_all_texts(spec, config.columns, config.on_error)
        return [self._coded(part) for part in (found.train, found.test) if part is not None]

    def adapt(self, samples: Any) -> list[Any]:
        """Convert texts to token ids of the model's tokenizer."""
        if isinstance(samples, Texts) and samples.tokens is not None and samples.tokenizer is self.tokenizer:
            return [samples]
        found = load_all_texts(samples)
        return [self._coded(part) for part in (found.train, found.test) if part is not None]

    def _coded(self, texts: Texts) -> Texts:
        assert self.sizes is not None
        assert self.tokenizer is not None
        return texts.tokenize(self.tokenizer, self.sizes["max_length"])


def _alike(test: Texts, train: Texts, length: int) -> Texts:
    """Return the test split with token ids.

    The token ids are those of the training split if both splits are rows of one store.
    """
    return replace(test, tokens=train.tokens) if test.store is train.store else test.tokenize(train.tokenizer, length)


def build_tokenizer(config: TrainConfig, train: Texts) -> Tokenizer:
    """Load or train the tokenizer for a run.

    It is the named tokenizer, or the pre-trained encoder's own, or one trained on every column of the
    training split.
    """
    if config.tokenizer != "auto":
        return load_pretrained_tokenizer(config.tokenizer)
    if config.encoder.startswith("hf:"):
        return load_pretrained_tokenizer(config.encoder[3:])
    return train_tokenizer((text for column in train.columns for text in train.get_strings(column=column)), config.vocab_size)
