"""BM25 through bm25s: passages by the words that they share with a question, rare words counting more.

Two files, no pickle: `bm25.safetensors` (the score of every word in every passage, sparse) and `bm25.json` (the words, and the
SHA-256 of the other file and of itself).
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
    """An index of words. `digest` names the passages it was made of."""

    engine: Any
    num_passages: int
    passages_digest: str

    def __len__(self) -> int:
        return self.num_passages

    def score_passages(self, question: str) -> Float32[np.ndarray, " p"]:
        """The score of every passage; 0 for those that share no word with the question."""
        known = self.engine.get_tokens_ids(tokenize_without_stopwords([question])[0])
        if not known:
            return np.zeros(self.num_passages, dtype=np.float32)
        return np.asarray(self.engine.get_scores_from_ids(known), dtype=np.float32)

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question; of equal scores the earlier passage comes first."""
        if k < 1:
            raise UsageError(f"`k` must be at least 1, got {k}.")
        k = min(k, self.num_passages)
        scores, rows = np.zeros((len(questions), k), dtype=np.float32), np.zeros((len(questions), k), dtype=np.int64)
        for i, question in enumerate(questions):
            found = self.score_passages(question)
            last = -np.partition(-found, k - 1)[k - 1]  # from below: most scores are 0, and numpy is slow in the midst of equals
            above = np.flatnonzero(found > last)  # a partition chooses freely among those that equal the last one
            best = np.concatenate([above[np.argsort(-found[above], kind="stable")], np.flatnonzero(found == last)[: k - len(above)]])
            rows[i], scores[i] = best, found[best]
        return Hits(scores, rows)

    def save(self, folder: str | os.PathLike) -> None:
        """Write both files into a folder that is there."""
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
    """k1: how soon a repeated word counts no more; b: how much long passages are held against them."""
    if not passages:
        raise UsageError("there are no passages to build a BM25 index of")
    engine = _import_bm25s().BM25(k1=k1, b=b, method="lucene")
    words = tokenize_without_stopwords(passages)
    if not any(words):
        raise UsageError("none of the passages has a word that BM25 could count")
    engine.index(words, show_progress=False)
    return BM25(engine, len(passages), compute_passages_digest(passages))


def load_bm25(folder: str | os.PathLike) -> BM25:
    """What `save` wrote; a damaged file is refused by name."""
    from safetensors.numpy import load

    path = Path(folder)
    try:
        sealed = json.loads((path / "bm25.json").read_bytes().decode("utf-8", "surrogatepass"))
        body, raw = sealed["body"], (path / "bm25.safetensors").read_bytes()
        if sealed["sha256"] != _compute_checksum(body):
            raise NearfarError(f"{path / 'bm25.json'} is damaged: build the index anew")
        if body["format"] != BM25_FORMAT:
            raise NearfarError(f"{path / 'bm25.json'} has format {body['format']}; this version of nearfar reads format {BM25_FORMAT}")
        if body["sha256"] != hashlib.sha256(raw).hexdigest():
            raise NearfarError(f"{path / 'bm25.safetensors'} is damaged: build the index anew")
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
        raise NearfarError(f"the BM25 index in {path} is damaged ({e}): build it anew") from e
    return BM25(engine, body["passages"], body["digest"])


def tokenize_without_stopwords(texts: Sequence[str]) -> list[list[str]]:
    """Words in lower case, without the most frequent English ones."""
    return _import_bm25s().tokenize(list(texts), token_pattern=WORD_PATTERN, stopwords="en", return_ids=False, show_progress=False)


def compute_passages_digest(passages: Sequence[str]) -> str:
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
