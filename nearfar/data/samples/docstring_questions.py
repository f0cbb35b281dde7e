"""Questions about Python's standard library, made from its docstrings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearfar.core.random_key import RandomKey
from nearfar.data.samples.docstrings import make_docstrings
from nearfar.data.text.dataset import Texts, TextStore


def make_docstring_questions() -> Texts:
    """Build a question dataset from Python docstrings.

    The first sentence of a docstring is the question, and its other sentences are the passage. The negative
    is the passage of another docstring of the same module. The answer is the sentence of the passage that
    shares the most words with the question, relative to its length.
    """
    columns: dict[str, list[str]] = {name: [] for name in ("passage", "question", "answer", "negative")}
    for module, told in _docstrings_by_module().items():
        further = RandomKey(0)("docstring-questions", module).integers(np.arange(len(told)), max(len(told) - 1, 1))
        for i, (question, *rest) in enumerate(told if len(told) > 1 else ()):
            other = told[(i + 1 + int(further[i])) % len(told)]
            row = (" ".join(rest), question, max(rest, key=_count_shared_words(question)), " ".join(other[1:]))
            for name, text in zip(columns, row, strict=True):
                columns[name].append(text)
    return Texts(TextStore(columns), np.arange(len(columns["question"])), source="docstring-questions")


def _docstrings_by_module() -> dict[int, list[list[str]]]:
    """Return the sentences of docstrings by module.

    Docstrings with fewer than two sentences are omitted.
    """
    found = make_docstrings()
    assert found.document_ids is not None
    assert found.labels is not None
    sentences: dict[tuple[int, int], list[str]] = {}
    for text, document, module in zip(found.get_strings(), found.document_ids, found.labels, strict=True):
        sentences.setdefault((int(module), int(document)), []).append(text)
    modules: dict[int, list[list[str]]] = {}
    for (module, _), texts in sentences.items():
        if len(texts) > 1:
            modules.setdefault(module, []).append(texts)
    return modules


def _count_shared_words(question: str) -> Callable[[str], float]:
    words = set(question.lower().split())
    return lambda sentence: len(words & set(sentence.lower().split())) / (1 + len(sentence.split()))
