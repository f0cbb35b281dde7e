"""Loading of a corpus from a user's data."""

from __future__ import annotations

import itertools
import os
from typing import Any

from nearfar.core.errors import UsageError
from nearfar.data.common.splits import Splits
from nearfar.data.samples.docstrings import make_docstrings
from nearfar.data.words.dataset import MIN_COUNT, Corpus, build_corpus, split_words
from nearfar.data.words.readers import find_corpus_files, read_sentences


def load_words(spec: Any, *, min_count: int = MIN_COUNT) -> Splits:
    """Load running text.

    There is no test split, because word similarity ratings by people evaluate words.

    Args:
        spec: 'docstrings' (of Python's standard library); a text file; a folder of .txt files; or a list of
            lines.
        min_count: smallest count of a word that is kept.

    Raises:
        UsageError: the source is missing, not supported or too small.
    """
    if isinstance(spec, Corpus):
        return Splits(spec, None)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(line, str) for line in spec):
        return Splits(build_corpus(map(split_words, spec), min_count, f"list of {len(spec)} lines"), None)
    if not isinstance(spec, (str, os.PathLike)):
        raise UsageError(f"cannot read running text from a {type(spec).__name__}: give a name, a text file, a folder or a list of lines")
    text = os.fspath(spec)
    if text == "docstrings":
        return Splits(build_corpus(map(split_words, make_docstrings().get_strings()), min_count, text), None)
    lines = itertools.chain.from_iterable(map(read_sentences, find_corpus_files(text)))
    return Splits(build_corpus(map(split_words, lines), min_count, text), None)
