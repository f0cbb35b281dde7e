"""Texts: counted words are the baseline. Questions and their passages are measured by what is found (`questions`), readers by what they
mark (`reading`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.api.evaluate import splits_of
from nearfar.core import Key
from nearfar.data import Texts
from nearfar.evaluate import Features
from nearfar.modalities.interface import Evaluation, Kind, Pair, Progress, encode
from nearfar.modalities.passage_readers import marks_answers, reading
from nearfar.modalities.questions import has_towers, retrieval
from nearfar.train.model import Trained
from nearfar.train.step import frozen_statistics

WORDS = 1024
"""Words that are counted as a baseline: the most frequent ones."""
MOST_TEXTS = 20_000
"""Training texts that probes learn from, at most: counted words of all of them would not fit into memory."""


class TextKind(Kind):
    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation | None:
        if not self.measures_itself(trained):
            return None
        own, splits = retrieval if has_towers(trained) else reading, splits_of(trained, data, progress)
        return own(trained, splits, self.chosen(splits.train, Key(trained.run.seed)("evaluate")), progress)

    def measures_itself(self, trained: Trained) -> bool:
        return has_towers(trained) or marks_answers(trained)

    def chosen(self, train: Texts, key: Key) -> Texts:
        return train if len(train) <= MOST_TEXTS else train.subset(np.sort(key("chosen").permutation(len(train))[:MOST_TEXTS]))

    def unprobed(self, train: Texts) -> str:
        alone = len(train.columns) == 1
        return "" if alone else f"A label is of the {len(train.columns)} texts of a row, a vector of one: nothing is predicted from it."

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
            return encode(trained, views[0]), encode(trained, views[1])
        with Key(trained.run.seed)("evaluate", "dropout").seeded(), frozen_statistics(trained.net):
            return encode(trained, views[0], dropout=True), encode(trained, views[1], dropout=True)

    def summary(self, train: Texts) -> str:
        return f"{len(train):,} training texts, {train.tokenizer.size:,} tokens in the vocabulary"

    def shown(self, data: Texts) -> Callable[[Tensor], Any]:
        return lambda ids: np.array(data.texts(ids.reshape(-1).numpy()), dtype=object).reshape(ids.shape).tolist()

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[list[str], list[str]]:
        assert trained.tokenizer is not None
        first, second = ([trained.tokenizer.decode(row) for row in view.tolist()] for view in views)
        return first, second
