"""BM25 search through bm25s: passages ranked by the words they share with a question.

Rare words count more. An index is stored as a folder `bm25` with the files that bm25s writes, NumPy arrays and
JSON without pickle, and a manifest with their checksums (see `index_folder.py`):

    scores-1.npy           the score of every word in every passage that has it
    passages-1.npy         the numbers of these passages
    offsets-1.npy          the place in both arrays where each word begins
    words-1.json           the number of each word
    settings-1.json        k1, b and the number of passages
    manifest.json          the checksums, and the SHA-256 of the passages
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Float32

from nearfar.core import NearfarError, UsageError
from nearfar.core.errors import MissingExtra
from nearfar.index.base_index import Hits
from nearfar.index.index_folder import create_index_folder, verify_index_folder

BM25_FORMAT = 2
BM25_FOLDER = "bm25"
BM25S_FILES = {
    "data_name": "scores.npy", "indices_name": "passages.npy", "indptr_name": "offsets.npy",
    "vocab_name": "words.json", "params_name": "settings.json",
}  # fmt: skip
"""Names of the files, by the arguments of bm25s that name them."""
FORMER_FILES = ("bm25.json", "bm25.safetensors")
"""Files of format 1, which lie next to the folder of this format."""
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
        """Write the folder `bm25` into an existing folder, in place of an earlier one."""
        outer = Path(folder)
        metadata = {"bm25_format": BM25_FORMAT, "passages_digest": self.passages_digest}
        try:
            with TemporaryDirectory(prefix=f".{BM25_FOLDER}.", dir=outer) as temporary:
                self.engine.save(temporary, **BM25S_FILES, show_progress=False)
                writers = {name: partial(os.replace, Path(temporary) / name) for name in BM25S_FILES.values()}
                create_index_folder(outer / BM25_FOLDER, metadata, writers, overwrite=True)
        except OSError as e:
            raise NearfarError(f"cannot write the BM25 index into {outer}: {e.strerror or e}") from e
        with suppress(OSError):
            for name in FORMER_FILES:
                (outer / name).unlink(missing_ok=True)


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

    Every byte is verified. The arrays are then mapped into memory, because a search reads only the words of the
    question.

    Raises:
        UsageError: if there is no index, or one of an earlier format.
        NearfarError: if a file is damaged. The message names it.
    """
    bm25s, path = _import_bm25s(), Path(folder) / BM25_FOLDER
    if not path.exists() and (Path(folder) / FORMER_FILES[0]).exists():
        raise UsageError(f"the BM25 index in {folder} has format 1; this version of nearfar reads format {BM25_FORMAT}: build it again")
    if not path.exists():
        raise UsageError(f"{folder} holds no BM25 index: there is no folder {BM25_FOLDER} in it")
    manifest = verify_index_folder(path)
    try:
        stored_format, digest = manifest.metadata["bm25_format"], manifest.metadata["passages_digest"]
        if stored_format != BM25_FORMAT or set(manifest.sha256) != set(BM25S_FILES.values()):
            raise NearfarError(f"{path} has format {stored_format}; this version of nearfar reads format {BM25_FORMAT}: build it again")
        names = {argument: manifest.get_path(name).name for argument, name in BM25S_FILES.items()}
        engine = bm25s.BM25.load(path, **names, mmap=True, allow_pickle=False, override_params={"method": "lucene", "backend": "numpy"})
        return BM25(engine, engine.scores["num_docs"], digest)
    except (OSError, KeyError, TypeError, ValueError) as e:  # checksums match: another program wrote it
        raise NearfarError(f"{path} is not a BM25 index of this version of nearfar: {e}") from e


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


def _import_bm25s() -> Any:
    try:
        import bm25s
    except ImportError as e:
        raise MissingExtra("bm25s", "search", "BM25") from e
    return bm25s
