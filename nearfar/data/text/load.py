"""Loader of texts as a training and a test split."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.data.common.arrow_folder import is_dataset_folder, read_dataset_folder
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits, draw_test_ids, split_train_test
from nearfar.data.common.text_tables import TABLE_READERS, collect_rows, read_table
from nearfar.data.questions.load import load_questions
from nearfar.data.samples.docstring_questions import make_docstring_questions
from nearfar.data.samples.docstrings import make_docstring_pairs, make_docstring_triples, make_docstrings
from nearfar.data.text.dataset import Texts
from nearfar.data.text.readers import RowCollector, build_texts, read_text_file

BUILTIN_TEXTS: dict[str, Callable[[], Texts]] = {
    "docstrings": make_docstrings,
    "docstring-triples": make_docstring_triples,
    "docstring-pairs": make_docstring_pairs,
    "docstring-questions": make_docstring_questions,
}
TEXT_FILE_SUFFIXES = (".txt", *TABLE_READERS)
TRAIN_FILE_NAMES, TEST_FILE_NAMES = ("train", "training"), ("test",)


def load_texts(
    spec: Any, *, seed: int = 0, columns: str | None = None, on_error: str = "stop", test_ids: Sequence[int] | np.ndarray | None = None
) -> Splits:
    """Load texts as a training and a test split.

    Args:
        spec: Source of the texts: 'docstrings', 'docstring-triples', 'docstring-pairs' or
            'docstring-questions'; SQuAD's .json; a .txt with one sentence on each line; a .csv, .tsv,
            .jsonl or .parquet with named columns; a folder of such files (train.* and test.*, or one folder
            for each class); a folder of Hugging Face datasets; a list of strings; a mapping of columns to
            lists of strings (and label); a pair (texts, labels).
        seed: Random seed of the split if the data bring none. The test split is one in five of each class, or
            one in five documents if there are at least five.
        columns: Columns of texts, in order, and `label=NAME`, `score=NAME`.
        on_error: "stop" at a broken row with an error that names it, or "skip" it.
        test_ids: Test rows stored by an earlier run. An empty list means no test split.

    Raises:
        UsageError: The data cannot be read, or have fewer than two training texts.
    """
    if on_error not in ("stop", "skip"):
        raise UsageError(f"--on-error must be 'stop' or 'skip', got {on_error!r}")
    found = load_all_texts(spec, columns, on_error)
    n = len(found.train)
    if n < 2:
        raise UsageError(f"{found.train.source} has {n} text{'' if n == 1 else 's'} to learn from; at least 2 are needed")
    if test_ids is None and found.test is None:
        test_ids = _test_documents(found.train, seed)
    return split_train_test(found, seed, test_ids)


def _test_documents(data: Any, seed: int) -> np.ndarray | None:
    """Draw the rows of one document in five for testing.

    Neighboring rows of a document stay together, and training never sees a test document. The result is None
    if there are fewer than five documents.
    """
    passages = data.document_ids
    if passages is None or len(documents := np.unique(passages)) < 5:
        return None
    chosen = documents[draw_test_ids(len(documents), None, RandomKey(seed)("split"))]
    return np.flatnonzero(np.isin(passages, chosen))


def load_all_texts(spec: Any, columns: str | None = None, on_error: str = "stop") -> Splits:
    """Load all texts, with a test split only if the data bring one."""
    if isinstance(spec, Texts):
        return Splits(spec, None)
    if isinstance(spec, str) and spec in BUILTIN_TEXTS:
        return Splits(BUILTIN_TEXTS[spec](), None)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(spec, columns, on_error)
    if isinstance(spec, Mapping):
        named = {str(k): _strings(v, f"column {k!r}") for k, v in spec.items() if k != "label"}
        return Splits(build_texts(named, "a mapping of columns", spec.get("label")), None)
    if isinstance(spec, tuple) and len(spec) == 2 and not isinstance(spec[0], str):
        texts = _strings(spec[0], "the first of the pair")
        return Splits(build_texts({"text": texts}, f"list of {len(texts)} texts", spec[1]), None)
    if hasattr(spec, "__len__") and hasattr(spec, "__getitem__"):
        return Splits(build_texts({"text": _strings(spec, "the list")}, f"list of {len(spec)} texts"), None)
    raise UsageError(f"cannot read texts from a {type(spec).__name__}: give a name, a path, a list of strings or a mapping of columns")


def _strings(values: Any, what: str) -> list[str]:
    found = list(values)
    for i, value in enumerate(found):
        if not isinstance(value, str):
            raise UsageError(f"{what}: entry {i} is not a string but {type(value).__name__}")
    return found


def _read_path(spec: str | os.PathLike, columns: str | None, on_error: str) -> Splits:
    text = os.fspath(spec)
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'docstrings', a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder of them")
    if not path.exists():
        raise build_missing_data_error(text, BUILTIN_TEXTS)
    if path.suffix.lower() == ".json":
        return Splits(load_questions(path, on_error).to_training_texts(), None)
    if path.is_file():
        return Splits(_read_files([path], path.parent, text, columns, on_error), None)
    if is_dataset_folder(path):
        return _read_dataset(path, text, columns, on_error)
    return _read_folder(path, text, columns, on_error)


def _read_folder(path: Path, source: str, columns: str | None, on_error: str) -> Splits:
    """Read train.* and test.* if such files exist, else all files.

    All files are labeled by their folders if they are .txt files and none lies at the top.
    """
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in TEXT_FILE_SUFFIXES and not f.name.startswith("."))
    if not files:
        raise UsageError(f"there is no file in {source} that ends in {' or '.join(TEXT_FILE_SUFFIXES)}")
    top = [f for f in files if f.parent == path]
    by_name = {
        part: [f for f in top if f.stem.lower() in names] for part, names in (("train", TRAIN_FILE_NAMES), ("test", TEST_FILE_NAMES))
    }
    if by_name["train"]:
        parts = [_read_files(found, path, source, columns, on_error) for found in by_name.values() if found]
        return _same_classes(*parts) if len(parts) == 2 else Splits(parts[0], None)
    labelled = not top and all(f.suffix.lower() == ".txt" for f in files)
    return Splits(_read_files(files, path, source, columns, on_error, labelled), None)


def _read_files(files: list[Path], base: Path, source: str, columns: str | None, on_error: str, labelled: bool = False) -> Texts:
    collected = RowCollector(on_error)
    for file in files:
        name = str(file.relative_to(base))
        if file.suffix.lower() in TABLE_READERS:
            read_table(file, name, collected, columns)
        elif file.suffix.lower() == ".txt":
            read_text_file(file, name, collected, file.relative_to(base).parts[0] if labelled else None)
        else:
            raise UsageError(f"cannot read texts from the file {file}: give one that ends in {' or '.join(TEXT_FILE_SUFFIXES)}")
    return collected.to_texts(source)


def _read_dataset(path: Path, source: str, columns: str | None, on_error: str) -> Splits:
    splits = read_dataset_folder(path)
    found = []
    for split in ("train", "test"):
        if split in splits:
            collected = RowCollector(on_error)
            collected.start_file(f"{source}, {split}")
            collect_rows(splits[split], source, collected, columns)
            found.append(collected.to_texts(source))
    if "train" not in splits:
        raise UsageError(f"{source} has no split 'train'; it has {', '.join(splits)}")
    return _same_classes(*found) if len(found) == 2 else Splits(found[0], None)


def _same_classes(train: Texts, test: Texts) -> Splits:
    """Give both splits the same numbering of the classes."""
    classes = tuple(sorted({*train.classes, *test.classes}))
    parts = []
    for part in (train, test):
        labels = None if part.labels is None else np.array([classes.index(c) for c in part.classes], dtype=np.int64)[part.labels]
        parts.append(replace(part, labels=labels, classes=classes))
    return Splits(*parts)
