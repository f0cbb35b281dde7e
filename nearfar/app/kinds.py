"""What evaluation and report need to know of a modality: its simplest baselines, its views, how samples are shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import Key, Recipe
from nearfar.data import Images, Texts
from nearfar.evaluate import Features, raw_pixels
from nearfar.train.step import frozen_statistics
from nearfar.train.trained import Trained

Pair = tuple[Tensor, Tensor]
"""Two views of the same samples, row by row."""

LARGEST_RAW = 32
"""Raw pixels as a baseline are averaged down to this many a side: a probe on more takes longer than the training."""
WORDS = 1024
"""Words that are counted as a baseline: the most frequent ones."""
MOST_TEXTS = 20_000
"""Training texts that probes learn from, at most: counted words of all of them would not fit into memory."""


class Kind(ABC):
    """One modality."""

    def chosen(self, train: Any, key: Key) -> Any:
        """The training samples that probes and neighbours use."""
        return train

    @abstractmethod
    def baselines(self, train: Any, test: Any, views: Pair | None) -> dict[str, Features]:
        """What is known of the samples without learning anything."""

    @abstractmethod
    def encode(self, trained: Trained, views: Pair) -> Pair:
        """The representations of two views."""

    @abstractmethod
    def summary(self, train: Any) -> str:
        """The training data in a few words."""

    @abstractmethod
    def shown(self, data: Any) -> Callable[[Tensor], Any]:
        """Samples by their numbers, of any shape, as a report shows them."""

    @abstractmethod
    def shown_pair(self, trained: Trained, views: Pair) -> tuple[Any, Any]:
        """Two views as a report shows them."""


class ImageKind(Kind):
    def baselines(self, train: Images, test: Images, views: Pair | None) -> dict[str, Features]:
        return raw_pixels(_raw(train), _raw(test), None if views is None else (_small(views[0]), _small(views[1])))

    def encode(self, trained: Trained, views: Pair) -> Pair:
        return _encode(trained, views[0]), _encode(trained, views[1])

    def summary(self, train: Images) -> str:
        return f"{len(train):,} training images of {train.shape[2]} x {train.shape[1]} pixels"

    def shown(self, data: Images) -> Callable[[Tensor], Tensor]:
        return lambda ids: _unit(data, ids.reshape(-1).numpy()).unflatten(0, ids.shape)

    def shown_pair(self, trained: Trained, views: Pair) -> Pair:
        return views


class TextKind(Kind):
    def chosen(self, train: Texts, key: Key) -> Texts:
        return train if len(train) <= MOST_TEXTS else train.subset(np.sort(key("chosen").permutation(len(train))[:MOST_TEXTS]))

    def baselines(self, train: Texts, test: Texts, views: Pair | None) -> dict[str, Features]:
        """Counted words, and counted words weighed by how rare they are; words of the training split only."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        found = {}
        for name, rare in (("bag of words", False), ("tf-idf", True)):
            counter: Any = TfidfVectorizer(max_features=WORDS, sublinear_tf=True, use_idf=rare, token_pattern=r"\w+")
            first, second = counter.fit_transform(train.texts()), counter.transform(test.texts())
            found[name] = Features(first.toarray().astype(np.float32), second.toarray().astype(np.float32), scale=False, baseline=True)
        return found

    def encode(self, trained: Trained, views: Pair) -> Pair:
        """Two equal views are one text under two dropout masks."""
        if not torch.equal(*views):
            return _encode(trained, views[0]), _encode(trained, views[1])
        with Key(trained.run.seed)("evaluate", "dropout").seeded(), frozen_statistics(trained.net):
            return _encode(trained, views[0], dropout=True), _encode(trained, views[1], dropout=True)

    def summary(self, train: Texts) -> str:
        return f"{len(train):,} training texts, {train.tokenizer.size:,} tokens in the vocabulary"

    def shown(self, data: Texts) -> Callable[[Tensor], Any]:
        return lambda ids: np.array(data.texts(ids.reshape(-1).numpy()), dtype=object).reshape(ids.shape).tolist()

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[list[str], list[str]]:
        assert trained.tokenizer is not None
        first, second = ([trained.tokenizer.decode(row) for row in view.tolist()] for view in views)
        return first, second


def kind_of(recipe: Recipe) -> Kind:
    return TextKind() if recipe.card.modality == "text" else ImageKind()


@torch.no_grad()
def _encode(trained: Trained, view: Tensor, dropout: bool = False) -> Tensor:
    trained.net.train(dropout)
    try:
        return trained.recipe.encode(trained.net, view.to(trained.device)).float().cpu()
    finally:
        trained.net.eval()


def _raw(data: Images) -> Tensor:
    """All images as floats, averaged down where they are large; in parts, so that the full size never stands in memory."""
    return torch.cat([_small(_unit(data, np.arange(i, min(i + 512, len(data))))) for i in range(0, len(data), 512)])


def _small(images: Tensor) -> Tensor:
    large = images.shape[-1] > LARGEST_RAW
    return torch.nn.functional.adaptive_avg_pool2d(images, LARGEST_RAW) if large else images


def _unit(data: Images, ids: np.ndarray) -> Tensor:
    return data.read(ids).float() / 255
