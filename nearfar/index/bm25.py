"""BM25 search through bm25s: passages ranked by the words they share with a question.

Rare words count more. The index is two files without pickle: `bm25.safetensors` (the sparse scores of every
word in every passage) and `bm25.json` (the words, the SHA-256 of the other file and its own SHA-256).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from nearfar.core import NearfarError, UsageError
from nearfar.core.errors import MissingExtra
from nearfar.core.files import atomic_write
from nearfar.index.base_index import Hits

BM25_FORMAT = 1
WORD_PATTERN = r"(?u)\b\w+\b"


@dataclass(frozen=True, eq=False)
class BM25:
    """BM25 index of passages.

    `passages_digest` identifies the passages that the index was built from.
    """

    engine: Any
    num_passages: int
    passages_digest: str

    def __len__(self) -> int:
        return self.num_passages

    def score_passages(self, question: str) -> Float32[np.ndarray, " p"]:
        """Compute the score of every passage for a question.

        The score is 0 for passages that share no word with the question. Returns an array (p,).
        """
        known = self.engine.get_tokens_ids(tokenize_without_stopwords([question])[0])
        if not known:
            return np.zeros(self.num_passages, dtype=np.float32)
        return np.asarray(self.engine.get_scores_from_ids(known), dtype=np.float32)

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question.

        Ties are in the order of the passages.
        """
        if k < 1:
            raise UsageError(f"`k` must be at least 1, got {k}.")
        k = min(k, self.num_passages)
        scores, rows = np.zeros((len(questions), k), dtype=np.float32), np.zeros((len(questions), k), dtype=np.int64)
        for i, question in enumerate(questions):
            found = self.score_passages(question)
            # Scores are negated, because most of them are 0 and numpy partitions slowly among ties.
            last = -np.partition(-found, k - 1)[k - 1]
            # A partition may return any of the rows tied with the last one.
            above = np.flatnonzero(found > last)
            best = np.concatenate([above[np.argsort(-found[above], kind="stable")], np.flatnonzero(found == last)[: k - len(above)]])
            rows[i], scores[i] = best, found[best]
        return Hits(scores, rows)

    def save(self, folder: str | os.PathLike) -> None:
        """Write both files into an existing folder."""
        from safetensors.numpy import save

        tensors = save({name: np.ascontiguousarray(self.engine.scores[name]) for name in ("data", "indices", "indptr")})
        words = sorted(self.engine.vocab_dict.items(), key=lambda item: item[1])
        body = {
            "format": BM25_FORMAT, "passages": self.num_passages, "digest": self.passages_digest, "k1": self.engine.k1, "b": self.engine.b,
            "words": words, "sha256": hashlib.sha256(tensors).hexdigest(),
        }  # fmt: skip
        with atomic_write(Path(folder) / "bm25.safetensors") as f:
            f.write(tensors)
        with atomic_write(Path(folder) / "bm25.json") as f:
            f.write(json.dumps({"sha256": _compute_checksum(body), "body": body}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def build_bm25(passages: Sequence[str], k1: float = 1.5, b: float = 0.75) -> BM25:
    """Build a BM25 index of passages.

    Args:
        passages: Texts to index.
        k1: Saturation of word counts. With a small k1, a repeated word soon stops adding to the score.
        b: Length normalization. With a large b, long passages score lower.
    """
    if not passages:
        raise UsageError("there are no passages to build a BM25 index from")
    engine = _import_bm25s().BM25(k1=k1, b=b, method="lucene")
    words = tokenize_without_stopwords(passages)
    if not any(words):
        raise UsageError("none of the passages has a word that BM25 could count")
    engine.index(words, show_progress=False)
    return BM25(engine, len(passages), compute_passages_digest(passages))


def load_bm25(folder: str | os.PathLike) -> BM25:
    """Load the index that `BM25.save` wrote.

    Raises an error that names the file if it is missing or damaged.
    """
    from safetensors.numpy import load

    path = Path(folder)
    try:
        sealed = json.loads((path / "bm25.json").read_bytes().decode("utf-8", "surrogatepass"))
        body, raw = sealed["body"], (path / "bm25.safetensors").read_bytes()
        if sealed["sha256"] != _compute_checksum(body):
            raise NearfarError(f"{path / 'bm25.json'} is damaged: build the index again")
        if body["format"] != BM25_FORMAT:
            raise NearfarError(f"{path / 'bm25.json'} has format {body['format']}; this version of nearfar reads format {BM25_FORMAT}")
        if body["sha256"] != hashlib.sha256(raw).hexdigest():
            raise NearfarError(f"{path / 'bm25.safetensors'} is damaged: build the index again")
        engine = _import_bm25s().BM25(k1=body["k1"], b=body["b"], method="lucene")
        engine.scores = load(raw) | {"num_docs": body["passages"]}
        engine.vocab_dict = dict(body["words"])
        engine.unique_token_ids_set = set(engine.vocab_dict.values())
        engine.nonoccurrence_array = None
    except MissingExtra:
        raise
    except FileNotFoundError as e:
        raise UsageError(f"{path} holds no BM25 index: there is no {Path(e.filename).name}") from e
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise NearfarError(f"the BM25 index in {path} is damaged ({e}): build it again") from e
    return BM25(engine, body["passages"], body["digest"])


def tokenize_without_stopwords(texts: Sequence[str]) -> list[list[str]]:
    """Split texts into lower-case words, without English stopwords."""
    return _import_bm25s().tokenize(list(texts), token_pattern=WORD_PATTERN, stopwords="en", return_ids=False, show_progress=False)


def compute_passages_digest(passages: Sequence[str]) -> str:
    """Compute the SHA-256 of the passages and their order."""
    h = hashlib.sha256()
    for text in passages:
        raw = text.encode("utf-8", "surrogatepass")
        h.update(len(raw).to_bytes(8, "little") + raw)
    return h.hexdigest()


def _compute_checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _import_bm25s() -> Any:
    try:
        import bm25s
    except ImportError as e:
        raise MissingExtra("bm25s", "search", "BM25") from e
    return bm25s
