"""Synonyms from WordNet 3.0's dictionary files (data.noun, data.verb, data.adj, data.adv)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from nearfar.core.errors import NearfarError, UsageError

DICTIONARY_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")


@lru_cache(maxsize=2)
def read_synonyms(folder: str | os.PathLike) -> dict[str, tuple[str, ...]]:
    """Return the synonyms of each word, in lower case and alphabetical order.

    Synonyms of a word are all words that share a sense with it. Words without synonyms are left out.

    Args:
        folder: Folder of WordNet's dictionary files.

    Raises:
        UsageError: A dictionary file is missing.
        NearfarError: A line is not a line of WordNet.
    """
    found: dict[str, set[str]] = {}
    for part in DICTIONARY_FILES:
        path = Path(folder).expanduser() / part
        if not path.is_file():
            raise UsageError(f"{folder} is not a folder of WordNet: it has no {part}")
        for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
            if line.startswith("  "):  # the license at the head of each file
                continue
            words = _words(line, path, number)
            for word in words:
                found.setdefault(word, set()).update(words)
    return {word: tuple(sorted(others - {word})) for word, others in found.items() if len(others) > 1}


def _words(line: str, path: Path, number: int) -> list[str]:
    """Return the words of a sense.

    A line holds offset, file, kind, count (hexadecimal), then words and numbers in turn.
    """
    fields = line.split(" ")
    try:
        count = int(fields[3], 16)
        words = fields[4 : 4 + 2 * count : 2]
    except (IndexError, ValueError):
        words, count = [], -1
    if len(words) != count:
        raise NearfarError(f"{path}, line {number}: not a line of WordNet")
    return [word.split("(")[0].replace("_", " ").lower() for word in words]
