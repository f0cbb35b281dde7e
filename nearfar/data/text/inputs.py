"""Texts, as token ids of a tokenizer that a run brings or trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearfar.core import Run, Sizes
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer, pretrained_tokenizer, train_tokenizer
from nearfar.data.text.dataset import Texts
from nearfar.data.text.load import open_texts, read_texts


@dataclass(frozen=True)
class TextInputs(Inputs):
    reads = ("columns", "tokenizer", "vocabulary", "length")

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None
    """None: the one that the run asks for, trained on the training split if need be."""

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        found = open_texts(spec, seed=run.seed, columns=run.columns, on_error=run.on_error, split=split)
        tokenizer = self.tokenizer or tokenizer_for(run, found.train)
        train = found.train.tokenised(tokenizer, run.length)
        if found.test is None:
            return Splits(train, None, found.test_ids)
        return Splits(train, _alike(found.test, train, run.length), found.test_ids)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        found = read_texts(spec, run.columns, run.on_error)
        return [self._coded(part) for part in (found.train, found.test) if part is not None]

    def accept(self, what: Any) -> list[Any]:
        if isinstance(what, Texts) and what.tokens is not None and what.tokenizer is self.tokenizer:
            return [what]
        found = read_texts(what)
        return [self._coded(part) for part in (found.train, found.test) if part is not None]

    def _coded(self, texts: Texts) -> Texts:
        assert self.sizes is not None
        assert self.tokenizer is not None
        return texts.tokenised(self.tokenizer, self.sizes["length"])


def _alike(test: Texts, train: Texts, length: int) -> Texts:
    """The test split with token ids: the training split's own where both are rows of one store."""
    return replace(test, tokens=train.tokens) if test.store is train.store else test.tokenised(train.tokenizer, length)


def tokenizer_for(run: Run, train: Texts) -> Tokenizer:
    """The tokenizer a run asks for: named, the pre-trained encoder's own, or trained on every column of the training split."""
    if run.tokenizer != "auto":
        return pretrained_tokenizer(run.tokenizer)
    if run.encoder.startswith("hf:"):
        return pretrained_tokenizer(run.encoder[3:])
    return train_tokenizer((text for column in train.columns for text in train.texts(column=column)), run.vocabulary)
