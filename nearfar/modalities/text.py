"""Text modality.

Word counts are the baseline. Models of questions and passages are evaluated by retrieval
(`retrieval_evaluation`). Readers are evaluated by the answers that they mark (`reader_evaluation`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.core.progress import ProgressCallback
from nearfar.data import Texts
from nearfar.evaluate import Features
from nearfar.modalities.modality import Evaluation, Modality, encode_view
from nearfar.modalities.reader_evaluation import evaluate_reader, is_reader
from nearfar.modalities.retrieval_evaluation import evaluate_question_retrieval, has_question_and_passage_towers
from nearfar.train.model import Model
from nearfar.train.model_data import ViewPair, load_model_splits
from nearfar.train.step import freeze_batch_norm_statistics

BAG_OF_WORDS_SIZE = 1024
"""Number of counted words in a baseline, the most frequent ones."""
MAX_TRAIN_TEXTS = 20_000
"""Largest number of training texts for probes. Word counts of more texts would not fit into memory."""


class TextModality(Modality):
    """Texts."""

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation | None:
        if not self.has_own_evaluation(model):
            return None
        own, splits = (
            evaluate_question_retrieval if has_question_and_passage_towers(model) else evaluate_reader,
            load_model_splits(model, data, progress),
        )
        return own(model, splits, self.select_train_samples(splits.train, RandomKey(model.config.seed)("evaluate")), progress)

    def has_own_evaluation(self, model: Model) -> bool:
        return has_question_and_passage_towers(model) or is_reader(model)

    def select_train_samples(self, train: Texts, rng_key: RandomKey) -> Texts:
        return (
            train if len(train) <= MAX_TRAIN_TEXTS else train.subset(np.sort(rng_key("chosen").permutation(len(train))[:MAX_TRAIN_TEXTS]))
        )

    def explain_skipped_probes(self, train: Texts) -> str:
        alone = len(train.columns) == 1
        return "" if alone else f"Probes are skipped: a label describes {len(train.columns)} texts, a vector only one."

    def compute_baselines(self, train: Texts, test: Texts, views: ViewPair | None) -> dict[str, Features]:
        """Compute word counts and tf-idf vectors, with words of the training split only."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        found = {}
        for name, rare in (("bag of words", False), ("tf-idf", True)):
            counter: Any = TfidfVectorizer(max_features=BAG_OF_WORDS_SIZE, sublinear_tf=True, use_idf=rare, token_pattern=r"\w+")
            first, second = counter.fit_transform(train.get_strings()), counter.transform(test.get_strings())
            found[name] = Features(
                first.toarray().astype(np.float32), second.toarray().astype(np.float32), standardize=False, baseline=True
            )
        return found

    def encode_views(self, model: Model, views: ViewPair) -> ViewPair:
        """Encode two views.

        Equal views are one text under two dropout masks.
        """
        if not torch.equal(*views):
            return encode_view(model, views[0]), encode_view(model, views[1])
        with RandomKey(model.config.seed)("evaluate", "dropout").fork_torch_rng(), freeze_batch_norm_statistics(model.net):
            return encode_view(model, views[0], dropout=True), encode_view(model, views[1], dropout=True)

    def summarize_data(self, train: Texts) -> str:
        return f"{len(train):,} training texts, {train.tokenizer.vocab_size:,} tokens in the vocabulary"

    def build_sample_renderer(self, data: Texts) -> Callable[[Tensor], Any]:
        return lambda ids: np.array(data.get_strings(ids.reshape(-1).numpy()), dtype=object).reshape(ids.shape).tolist()

    def render_views(self, model: Model, views: ViewPair) -> tuple[list[str], list[str]]:
        assert model.tokenizer is not None
        first, second = ([model.tokenizer.decode(row) for row in view.tolist()] for view in views)
        return first, second
