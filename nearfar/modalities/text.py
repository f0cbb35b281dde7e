"""Text modality.

Word counts are the baseline. Models of questions and passages are evaluated by retrieval
(`retrieval_evaluation`). Readers are evaluated by the answers that they mark (`reader_evaluation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.core.modality import Evaluation, Modality, SampleMedia, ViewPair, encode_view
from nearfar.core.progress import ProgressCallback
from nearfar.data import Texts, Tokenizer
from nearfar.data.text.inputs import TextInputs
from nearfar.evaluate import Features
from nearfar.modalities.encoder_signature import EncoderSignature, get_text_towers
from nearfar.modalities.reader_evaluation import evaluate_reader, is_reader
from nearfar.modalities.retrieval_evaluation import evaluate_question_retrieval, has_question_and_passage_towers
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits
from nearfar.train.step import freeze_batch_norm_statistics

BAG_OF_WORDS_SIZE = 1024
"""Number of counted words in a baseline, the most frequent ones."""
MAX_TRAIN_TEXTS = 20_000
"""Largest number of training texts for probes. Word counts of more texts would not fit into memory."""
MIN_TOKENS = 3
"""Fewest tokens of a text for an exported program. Attention over fewer tokens is a special case."""
WORD_DIFFERENCE_NOTE = " · highlighted: words that the selected sample does not contain"


class TextModality(Modality):
    """Texts."""

    name = "text"
    plural = "texts"
    reveals_copies = True
    settings = ("columns", "tokenizer", "vocab_size", "max_length")
    data_help = (
        "Texts: 'docstrings', a .txt file with one sentence per line, a .csv, .tsv, .jsonl or .parquet table, or a folder of such "
        "files. Questions: a table with the columns question and passage, or a SQuAD .json file."
    )
    encoder_help = (
        "Texts: bert-tiny, bert-mini, bert-small, bert-medium, bert-base (random weights), gru, bag, or hf:NAME-OR-FOLDER, a "
        "transformers model. auto: bert-tiny."
    )
    candidates = ("simcse-unsup", "bert")
    bundled = ("docstrings", "docstring-triples", "docstring-pairs", "docstring-questions")
    extensions = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
    media = SampleMedia(difference=WORD_DIFFERENCE_NOTE)
    input_types = ("texts",)
    pipeline_tag = "sentence-similarity"
    code_example = '["a text", "another"]'

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> TextInputs:
        return TextInputs(sizes, tokenizer)

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

    def encode_ranking_views(self, model: Model, samples: Texts, rng_key: RandomKey) -> ViewPair:
        """Encode each text twice: two dropout masks make the views."""
        tokens = samples.read(np.arange(len(samples)))
        return self.encode_views(model, (tokens, tokens))

    def read_raw_features(self, model: Model, data: Texts, ids: np.ndarray) -> Tensor:
        """Count each token of a text. Padding does not count."""
        tokens, width = data.read(ids), model.net.sizes["vocab_size"]
        counts = torch.zeros(len(tokens), width).scatter_add_(1, tokens, torch.ones(tokens.shape))
        counts[:, model.net.sizes["special"]["pad"]] = 0
        return counts

    def parse_query(self, model: Model, query: str) -> list[str]:
        """Return the query as a text. "text:17" is the text 17."""
        return [query.removeprefix("text:")]

    def reads_query_files(self) -> bool:
        return False

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        signature, towers = build_text_signature(model.net.sizes), get_text_towers(model)
        return {tower: replace(signature, tower=tower) for tower in towers} if len(towers) > 1 else {"model": signature}


def build_text_signature(sizes: Any) -> EncoderSignature:
    """Return the signature of a text encoder."""
    longest, special = max(MIN_TOKENS, -(-sizes["max_length"] // 8) * 8), sizes["special"]
    words = {
        "input": "ids",
        "dtype": "int64",
        "shape": ["n", "t"],
        "tokenizer": "tokenizer.json, for the package tokenizers",
        "cut_off_after": sizes["max_length"],
        "pad_on_the_right_with": special["pad"],
        "t": [MIN_TOKENS, longest],
    }
    ids = torch.arange(3 * longest).view(3, longest) * 7 % sizes["vocab_size"]
    return EncoderSignature("ids", ids, {0: "n", 1: "t"}, longest, words)
