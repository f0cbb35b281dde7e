"""Word modality: comparison with human judgments, or geometry if no judgment files are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation, SampleMedia
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits, Tokenizer
from nearfar.data.common.named_samples import select_all_names
from nearfar.data.words.dataset import Corpus
from nearfar.data.words.inputs import WordInputs
from nearfar.evaluate import Features, ResultTable, compare_features
from nearfar.evaluate.isotropy import cosine_moments
from nearfar.evaluate.related_pairs import related_pair_auc
from nearfar.evaluate.word_similarity import AnalogyResult, read_analogies, read_rated_pairs, score_analogies, score_word_similarity
from nearfar.modalities.embedding_tables import (
    EmbeddingTableModality,
    build_evaluation,
    build_protocol,
    build_result_row,
    encode_all_rows,
    get_row_numbers,
    list_nearest_names,
)
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

ANALOGY_CANDIDATE_WORDS = 30_000
"""Number of the most frequent words in analogy tests, as is common practice."""
QUOTED_WORDS = 5
"""Number of words whose neighbors are listed below the table."""


class WordModality(EmbeddingTableModality):
    """Words of a corpus."""

    name = "words"
    plural = "words"
    settings = ("min_count",)
    data_help = "Running text: 'docstrings', a text file, or a folder of .txt files."
    encoder_help = "Words have none: they learn a table of vectors."
    candidates = ("word2vec-skipgram-neg", "word2vec-cbow")
    ranking_measure = "AUC of neighboring words"
    media = SampleMedia(quote=True)
    input_types = ("texts",)
    code_example = '["a", "word"]'

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> WordInputs:
        return WordInputs(sizes, tokenizer)

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        rows = {"untrained table": encode_all_rows(model.build_untrained()), "trained table": encode_all_rows(model)}
        if data is None:
            return build_evaluation(model, _evaluate_geometry(model, rows), load_model_splits(model, None, progress))
        assert model.tokenizer is not None
        words = select_all_names(model.tokenizer)
        return build_evaluation(model, _evaluate_judgments(model, rows, find_judgment_files(data)), Splits(words, None))

    def score_without_labels(self, model: Model, splits: Splits, rng_key: RandomKey) -> float:
        corpus = splits.train
        inside = np.flatnonzero(~corpus.is_sentence_start[1:])
        pairs = np.stack([corpus.tokens[inside], corpus.tokens[inside + 1]], axis=1).astype(np.int64)
        return related_pair_auc(model.encode(corpus), pairs[pairs[:, 0] != pairs[:, 1]], rng_key)

    def summarize_data(self, train: Corpus) -> str:
        return f"{len(train.tokens):,} words of running text, {len(train):,} different ones"

    def reads_query_files(self) -> bool:
        return False

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        words = {"input": "ids", "dtype": "int64", "shape": ["n"], "meaning": "positions in the vocabulary of tokenizer.json"}
        return {"model": EncoderSignature("ids", torch.arange(4), {0: "n"}, None, words)}


def _evaluate_geometry(model: Model, rows: dict[str, Tensor]) -> ResultTable:
    """Evaluate how evenly the vectors use their space, and list neighbors.

    Running text does not state which words should be near each other.
    """
    found = {name: Features(x, x, baseline=name != "trained table") for name, x in rows.items()}
    table = compare_features(
        found, rng_key=RandomKey(model.config.seed)("evaluate"), checkpoint=f"step {model.step} of {model.config.steps}"
    )
    means = {name: cosine_moments(x)[0] for name, x in rows.items()}
    notes = [
        "Running text has no test split. --data FOLDER with WordSim-353, SimLex-999 or Google's analogies compares with human judgments.",
        f"Mean cosine of two words: {', '.join(f'{name} {mean:.3f}' for name, mean in means.items())} (0: all directions alike).",
        f"Nearest to the most frequent words: {'; '.join(list_nearest_names(model, QUOTED_WORDS))}.",
    ]
    return ResultTable(table.results, table.protocol | build_protocol(model, notes))


def find_judgment_files(data: Any) -> list[Path]:
    """Return the judgment files in a folder, or the given file."""
    path = Path(data).expanduser() if isinstance(data, (str, Path)) else None
    if path is None or not path.exists():
        raise UsageError(f"no judgments at {data!r}: name a folder with files such as WordSim-353, SimLex-999 or Google's analogies")
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in (".txt", ".tsv", ".csv"))
    files = [file for file in files if not file.name.lower().startswith(("readme", "license"))]
    if not files:
        raise UsageError(f"the folder {path} has no .txt, .tsv or .csv files of judgments")
    return files


def _evaluate_judgments(model: Model, rows: dict[str, Tensor], files: list[Path]) -> ResultTable:
    number, stems = get_row_numbers(model), [file.stem for file in files]
    results = [build_result_row(name, name != "trained table", x) for name, x in rows.items()]
    titles, notes = {}, ["In per cent: Spearman's correlation of cosines with human judgments, or right answers to analogies (3CosAdd)."]
    for file in files:
        asked = _is_analogy_file(file)
        sections, pairs = (read_analogies(file), None) if asked else (None, read_rated_pairs(file))
        covered = total = 0
        for result, x in zip(results, rows.values(), strict=True):
            if sections is not None:
                found = sum(score_analogies(x, number, sections, ANALOGY_CANDIDATE_WORDS).values(), AnalogyResult(0, 0, 0))
                value, covered, total = found.accuracy, found.covered, found.questions
            else:
                assert pairs is not None
                agreed = score_word_similarity(x, number, pairs)
                value, covered, total = agreed.spearman, agreed.covered, agreed.pairs
            if not math.isnan(value):
                result[f"file {file.name}"] = value
        titles[f"file {file.name}"] = file.stem if stems.count(file.stem) == 1 else file.name
        notes.append(f"{file.name}: {covered:,} of {total:,} {'questions' if asked else 'pairs'} consist of known words.")
    return ResultTable(results, build_protocol(model, notes, accuracies=titles))


def _is_analogy_file(file: Path) -> bool:
    """Return True for analogy files.

    Google's file names its sections: ': capital-common-countries'.
    """
    with file.open("rb") as lines:
        return next((line for line in lines if line.strip() and not line.startswith(b"#")), b"").startswith(b":")
