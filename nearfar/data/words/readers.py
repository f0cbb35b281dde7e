"""File formats of running text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nearfar.core.errors import UsageError
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.numbered_lines import read_numbered_lines


def find_corpus_files(text: str) -> list[Path]:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, ["docstrings"], "text")
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"the folder {path} has no .txt files")
    return files


def read_sentences(path: Path) -> Iterator[str]:
    """Read the sentences of a UTF-8 file, one per line.

    Raises an error that names the line if a line is not text.
    """
    for _, line in read_numbered_lines(path):
        sentence = line.strip()
        if sentence and sentence != "#" and not sentence.startswith("# "):
            yield sentence
