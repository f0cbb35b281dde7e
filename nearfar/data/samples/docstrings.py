"""Built-in texts: the sentences of the docstrings of Python's standard library.

    docstrings          one sentence in each row, its module as the label, each docstring a document
    docstring-triples   (anchor, positive, negative): a sentence, the next sentence of its docstring,
                        a sentence of another docstring of the module
    docstring-pairs     two sentences, labeled "same" or "other": of one docstring or not; scored 1 or 0

The texts are the same on every machine with the same Python. Nothing is imported or run: the files are
parsed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.data.text.dataset import Texts, TextStore

DOCSTRING_MODULES = (
    "_pydecimal", "_pyio", "asyncio", "datetime", "difflib", "email", "http", "importlib", "inspect", "ipaddress", "logging", "mailbox",
    "multiprocessing", "pathlib", "shutil", "statistics", "tarfile", "threading", "typing", "unittest", "urllib", "xml",
)  # fmt: skip
MIN_WORDS, MAX_WORDS = 4, 40
"""Range of words in a sentence. Shorter sentences say little, and longer ones are lists."""


def make_docstrings() -> Texts:
    """Build the dataset of sentences, labeled by module."""
    sentences, modules, passages = _sentences()
    classes = tuple(sorted(set(modules)))
    labels = np.searchsorted(np.array(classes), np.array(modules)).astype(np.int64)
    store = TextStore({"text": sentences}, document_ids=np.array(passages, dtype=np.int64))
    return Texts(store, np.arange(len(store)), labels, classes, source="docstrings")


def make_docstring_triples() -> Texts:
    """Build the dataset of triples (anchor, positive, negative)."""
    anchors, positives, negatives = zip(*_triples(), strict=True)
    store = TextStore({"anchor": anchors, "positive": positives, "negative": negatives})
    return Texts(store, np.arange(len(store)), source="docstring-triples")


def make_docstring_pairs() -> Texts:
    """Build the dataset of sentence pairs, labeled same or other."""
    pairs = [pair for a, p, n in _triples() for pair in ((a, p), (a, n))]
    store = TextStore({"sentence1": [a for a, _ in pairs], "sentence2": [b for _, b in pairs]})
    same = np.arange(len(pairs)) % 2
    scores = (1 - same).astype(np.float32)
    return Texts(store, np.arange(len(pairs)), 1 - same, ("other", "same"), "docstring-pairs", scores=scores)


@lru_cache(maxsize=1)
def _sentences() -> tuple[list[str], list[str], list[int]]:
    """Return every sentence once, with its module and the number of its docstring."""
    found: dict[str, tuple[str, int]] = {}
    passage = 0
    for module in DOCSTRING_MODULES:
        for docstring in _docstrings_of(module):
            for sentence in split_sentences(docstring):
                if MIN_WORDS <= len(sentence.split()) <= MAX_WORDS:
                    found.setdefault(sentence, (module, passage))
            passage += 1
    if not found:
        raise UsageError("'docstrings' needs the source files of Python's standard library, and this Python has none")
    return list(found), [module for module, _ in found.values()], [number for _, number in found.values()]


def _docstrings_of(module: str) -> Iterator[str]:
    """Yield all docstrings of a module or package, without its tests.

    The order is that of file names, and of lines within a file.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return
    origin = Path(spec.origin)
    for file in sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]:
        if "test" in file.relative_to(origin.parent).parts:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (text := ast.get_docstring(node)):
                yield text


def split_sentences(docstring: str) -> list[str]:
    """Split the prose paragraphs of a docstring into sentences.

    Examples, tables and indented code are left out.
    """
    sentences = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.splitlines()
        prose = not any(line.startswith((" ", "\t", ">>>", "-", "*", "=", "|", "+")) for line in lines)
        if prose:
            sentences += re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(" ".join(lines).split()))
    return [s for s in sentences if s.endswith((".", "!", "?"))]


@lru_cache(maxsize=1)
def _triples() -> list[tuple[str, str, str]]:
    sentences, modules, passages = _sentences()
    members = {m: np.flatnonzero(np.array(modules) == m) for m in set(modules)}
    draw = RandomKey(0)("docstring-triples").uniform(np.arange(len(sentences)), 1)[:, 0]
    triples = []
    for i in range(len(sentences) - 1):
        others = members[modules[i]]
        others = others[np.array([passages[j] for j in others]) != passages[i]] if passages[i] == passages[i + 1] else others[:0]
        if len(others):
            triples.append((sentences[i], sentences[i + 1], sentences[others[int(draw[i] * len(others))]]))
    return triples
