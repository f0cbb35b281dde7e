"""From what a user names to a training and a test split of texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.core.random_key import Key
from nearfar.data.common.arrow_folder import is_dataset_folder, load_dataset_folder
from nearfar.data.common.missing import missing
from nearfar.data.common.splits import Splits, divide, draw_test_ids
from nearfar.data.common.tables import TABLES, read_table, take_rows
from nearfar.data.common.text_rows import Collected, from_strings, read_lines
from nearfar.data.questions.dataset import docstring_questions, read_questions
from nearfar.data.samples.docstrings import docstring_pairs, docstring_triples, docstrings
from nearfar.data.text.dataset import Texts

NAMES: dict[str, Callable[[], Texts]] = {
    "docstrings": docstrings,
    "docstring-triples": docstring_triples,
    "docstring-pairs": docstring_pairs,
    "docstring-questions": docstring_questions,
}
SUFFIXES = (".txt", *TABLES)
TRAIN, TEST = ("train", "training"), ("test",)


def open_texts(
    spec: Any, *, seed: int = 0, columns: str | None = None, on_error: str = "stop", split: Sequence[int] | np.ndarray | None = None
) -> Splits:
    """Open texts as a training and a test split.

    spec        'docstrings', 'docstring-triples', 'docstring-pairs', 'docstring-questions'; SQuAD's .json; a .txt of one sentence a
                line, a .csv, .tsv, .jsonl or .parquet
                with named columns, a folder of such files (train.* and test.*; or one folder a class), a folder of Hugging Face
                datasets; a list of strings; a mapping of columns to lists of strings (and label); a pair (texts, labels)
    seed        names the split, where the data bring none: one in five of each class, or whole documents where there are at least five
    columns     which columns are texts, in order, and `label=NAME`, `score=NAME`
    on_error    "stop" at a broken row and name it, or "skip" it
    split       test rows stored by an earlier run; an empty list: no test split
    """
    if on_error not in ("stop", "skip"):
        raise UsageError(f"--on-error is 'stop' or 'skip', got {on_error!r}")
    found = read_texts(spec, columns, on_error)
    n = len(found.train)
    if n < 2:
        raise UsageError(f"{found.train.source} has {n} text{'' if n == 1 else 's'} to learn from; at least 2 are needed")
    if split is None and found.test is None:
        split = _test_documents(found.train, seed)
    return divide(found, seed, split)


def _test_documents(data: Any, seed: int) -> np.ndarray | None:
    """The rows of one document in five: neighbours in a text are not torn apart, and a test document was never seen."""
    passages = data.passages
    if passages is None or len(documents := np.unique(passages)) < 5:
        return None
    chosen = documents[draw_test_ids(len(documents), None, Key(seed)("split"))]
    return np.flatnonzero(np.isin(passages, chosen))


def read_texts(spec: Any, columns: str | None = None, on_error: str = "stop") -> Splits:
    """Everything there is; a test split only where the data bring one."""
    if isinstance(spec, Texts):
        return Splits(spec, None)
    if isinstance(spec, str) and spec in NAMES:
        return Splits(NAMES[spec](), None)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(spec, columns, on_error)
    if isinstance(spec, Mapping):
        named = {str(k): _strings(v, f"column {k!r}") for k, v in spec.items() if k != "label"}
        return Splits(from_strings(named, "a mapping of columns", spec.get("label")), None)
    if isinstance(spec, tuple) and len(spec) == 2 and not isinstance(spec[0], str):
        texts = _strings(spec[0], "the first of the pair")
        return Splits(from_strings({"text": texts}, f"list of {len(texts)} texts", spec[1]), None)
    if hasattr(spec, "__len__") and hasattr(spec, "__getitem__"):
        return Splits(from_strings({"text": _strings(spec, "the list")}, f"list of {len(spec)} texts"), None)
    raise UsageError(f"cannot read texts from a {type(spec).__name__}: give a name, a path, a list of strings or a mapping of columns")


def _strings(values: Any, what: str) -> list[str]:
    found = list(values)
    for i, value in enumerate(found):
        if not isinstance(value, str):
            raise UsageError(f"{what}: entry {i} is no string but {type(value).__name__}")
    return found


def _read_path(spec: str | os.PathLike, columns: str | None, on_error: str) -> Splits:
    text = os.fspath(spec)
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'docstrings', a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder of them")
    if not path.exists():
        raise missing(text, NAMES)
    if path.suffix.lower() == ".json":
        return Splits(read_questions(path, on_error).pairs(), None)
    if path.is_file():
        return Splits(_read_files([path], path.parent, text, columns, on_error), None)
    if is_dataset_folder(path):
        return _read_dataset(path, text, columns, on_error)
    return _read_folder(path, text, columns, on_error)


def _read_folder(path: Path, source: str, columns: str | None, on_error: str) -> Splits:
    """train.* and test.* where there are such files; else all files, labelled by their folders if none lies at the top."""
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    if not files:
        raise UsageError(f"there is no file in {source} that ends in {' or '.join(SUFFIXES)}")
    top = [f for f in files if f.parent == path]
    by_name = {part: [f for f in top if f.stem.lower() in names] for part, names in (("train", TRAIN), ("test", TEST))}
    if by_name["train"]:
        parts = [_read_files(found, path, source, columns, on_error) for found in by_name.values() if found]
        return _same_classes(*parts) if len(parts) == 2 else Splits(parts[0], None)
    labelled = not top and all(f.suffix.lower() == ".txt" for f in files)
    return Splits(_read_files(files, path, source, columns, on_error, labelled), None)


def _read_files(files: list[Path], base: Path, source: str, columns: str | None, on_error: str, labelled: bool = False) -> Texts:
    collected = Collected(on_error)
    for file in files:
        name = str(file.relative_to(base))
        if file.suffix.lower() in TABLES:
            read_table(file, name, collected, columns)
        elif file.suffix.lower() == ".txt":
            read_lines(file, name, collected, file.relative_to(base).parts[0] if labelled else None)
        else:
            raise UsageError(f"cannot read texts from the file {file}: give one that ends in {' or '.join(SUFFIXES)}")
    return collected.texts(source)


def _read_dataset(path: Path, source: str, columns: str | None, on_error: str) -> Splits:
    splits = load_dataset_folder(path)
    found = []
    for split in ("train", "test"):
        if split in splits:
            collected = Collected(on_error)
            collected.open(f"{source}, {split}")
            take_rows(splits[split], source, collected, columns)
            found.append(collected.texts(source))
    if "train" not in splits:
        raise UsageError(f"{source} has no split 'train'; it has {', '.join(splits)}")
    return _same_classes(*found) if len(found) == 2 else Splits(found[0], None)


def _same_classes(train: Texts, test: Texts) -> Splits:
    """Both parts with one numbering of the classes."""
    classes = tuple(sorted({*train.classes, *test.classes}))
    parts = []
    for part in (train, test):
        labels = None if part.labels is None else np.array([classes.index(c) for c in part.classes], dtype=np.int64)[part.labels]
        parts.append(replace(part, labels=labels, classes=classes))
    return Splits(*parts)
