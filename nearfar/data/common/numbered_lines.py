"""Reader of the lines of text files.

A line that is not text is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nearfar.core.errors import NearfarError


def read_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for each line of a UTF-8 file, counted from 1.

    Raises:
        NearfarError: A line is not UTF-8 text. The message names the file and the line.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if b"\0" in raw:
                raise NearfarError(f"{path}, line {number}: a zero byte: this is not a text file")
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as e:
                raise NearfarError(f"{path}, line {number}: not UTF-8 ({e.reason} at byte {e.start + 1}): save the file as UTF-8") from e
