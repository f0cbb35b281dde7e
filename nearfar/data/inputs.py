"""What a net takes, by modality: how data are opened to train it, and brought to it once it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearfar.core import Recipe, Run, Sizes, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.data.accept import adapted, as_images, read_all
from nearfar.data.corpus import Corpus, Words, numbers, open_corpus
from nearfar.data.open import open_data
from nearfar.data.opentext import open_texts, read_texts
from nearfar.data.split import Splits
from nearfar.data.text import Texts
from nearfar.data.tokens import Tokenizer, pretrained_tokenizer, train_tokenizer

Progress = Callable[[int, int], None]


class Inputs(ABC):
    """The data of one modality. Built without a net they are opened as the run says; with one, they are brought to what it takes."""

    @abstractmethod
    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        """A training and a test split; `split`: the test rows that an earlier run stored."""

    @abstractmethod
    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """Everything there is, in the order of the source: one part, or two where the data bring a split."""

    @abstractmethod
    def accept(self, what: Any) -> list[Any]:
        """As `all`, of anything that a user may hand to a trained net: opened data too."""


@dataclass(frozen=True)
class ImageInputs(Inputs):
    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        size = run.image_size if self.sizes is None else self.sizes["size"]
        found = open_data(spec, seed=run.seed, image_size=size, on_error=run.on_error, split=split, progress=progress)
        return Splits(self._fit(found.train), None if found.test is None else self._fit(found.test), found.test_ids)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        assert self.sizes is not None
        found = read_all(spec, image_size=self.sizes["size"], on_error=run.on_error, progress=progress)
        return [part for part in (found.train, found.test) if part is not None]

    def accept(self, what: Any) -> list[Any]:
        assert self.sizes is not None
        return as_images(what, channels=self.sizes["channels"], size=self.sizes["size"])

    def _fit(self, images: Any) -> Any:
        return images if self.sizes is None else adapted(images, self.sizes["channels"], self.sizes["size"])


@dataclass(frozen=True)
class TextInputs(Inputs):
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


@dataclass(frozen=True)
class WordInputs(Inputs):
    """Opened as a corpus to train on; of a trained net, everything is its vocabulary, and what a user asks for are words of it."""

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


_INPUTS: dict[str, Any] = {"image": ImageInputs, "text": TextInputs, "words": WordInputs}


def inputs_for(recipe: Recipe, sizes: Sizes | None = None, tokenizer: Tokenizer | None = None) -> Inputs:
    """How the data of this recipe are opened; with a net's sizes, brought to what that net takes."""
    modality = recipe.card.modality
    if modality not in _INPUTS:
        raise UsageError(f"{type(recipe).__name__}: nothing is known of data of the modality {modality!r}: {', '.join(_INPUTS)} are")
    return _INPUTS[modality](sizes, tokenizer)  # type: ignore[arg-type]
