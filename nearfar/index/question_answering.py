"""Question answering: passages of an index, with the answer marked by a reader."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from nearfar.core import NearfarError, UsageError
from nearfar.index.base_index import Index
from nearfar.index.bm25 import BM25, build_bm25, compute_passages_digest, load_bm25
from nearfar.index.local_index import LocalIndex
from nearfar.index.passage_reader import PassageReader, Span
from nearfar.index.retrievers import DenseRetriever, HybridRetriever, LexicalRetriever, Retriever
from nearfar.train.model import Model

RetrievalMode = Literal["hybrid", "dense", "words"]


logger = logging.getLogger("nearfar")


@dataclass(frozen=True)
class Passage:
    """Retrieved passage with its best answer.

    `span` is None without a reader.
    """

    row: int
    name: str
    score: float
    text: str
    span: Span | None = None


def open_retriever(index: Index, load_model: Callable[[], Model], mode: RetrievalMode = "hybrid", weight: float = 0.5) -> Retriever:
    """Create the retriever of an index.

    Args:
        index: Index of texts.
        load_model: Function that loads the model. It is called only if the mode needs vectors.
        mode: "hybrid", "dense" (vectors) or "words" (BM25).
        weight: Weight of the vectors in a hybrid search, from 0 to 1.
    """
    if mode == "dense":
        return DenseRetriever(load_model(), index)
    rows, texts = read_index_texts(index)
    lexical = LexicalRetriever(_get_bm25(index, texts), rows)
    return lexical if mode == "words" else HybridRetriever(lexical, DenseRetriever(load_model(), index), weight)


def answer_question(question: str, index: Index, retriever: Retriever, k: int = 5, reader: PassageReader | None = None) -> list[Passage]:
    """Return the k best passages for a question, the best first.

    With a reader, each passage has its best span.
    """
    hits = retriever.search([question], k)
    items = index.describe_rows(hits.rows[0])
    texts = [item.get("text") or "" for item in items]
    spans = reader.read([question] * len(texts), texts) if reader else [None] * len(texts)
    found = zip(items, hits.scores[0], texts, spans, strict=True)
    passages = [Passage(item["row"], item["name"], float(score), text, span) for item, score, text, span in found]
    return (
        [p for p in passages if p.score > 0] if isinstance(retriever, LexicalRetriever) else passages
    )  # passages without a common word are not results


def read_index_texts(index: Index) -> tuple[np.ndarray, list[str]]:
    """Return the numbers and texts of all rows that are not deleted."""
    if not isinstance(index, LocalIndex):
        raise UsageError(f"a search by words needs an index in a folder, and {index.location} is not one: use --how dense")
    rows = np.setdiff1d(np.arange(index.next_row), index.deleted_rows)
    texts = [item.get("text") for item in index.describe_rows(rows)]
    if not texts or any(text is None for text in texts):
        raise UsageError(f"{index.location} is not an index of texts: search it with `nearfar search`")
    return rows, [text for text in texts if text is not None]


def _get_bm25(index: Index, texts: list[str]) -> BM25:
    """Return the BM25 index of the texts.

    It is stored in the folder of the index, and is rebuilt when the texts have changed. An index that cannot be
    stored is used all the same.
    """
    folder = Path(index.location)
    if folder.is_dir():
        try:
            kept = load_bm25(folder)
            if kept.passages_digest == compute_passages_digest(texts):
                return kept
        except NearfarError as e:
            logger.debug("%s", e)
    words = build_bm25(texts)
    if folder.is_dir() and os.access(folder, os.W_OK):
        try:
            words.save(folder)
        except NearfarError as e:  # such as another process that stores it at the same time
            logger.debug("%s", e)
    return words
