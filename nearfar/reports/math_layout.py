"""Layout of expressions as text: on one line, or with fractions in three lines.

A row is a list of texts and fractions. `join_row` writes a row on one line, `lay_out_row` in a block of lines.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

TIGHT = "\u2060"
"""Word joiner: removes the space next to it, and itself."""


@dataclass(frozen=True)
class Fraction:
    """A fraction that may be laid out in three lines."""

    above: Row
    below: Row


Row = list[str | Fraction]
"""Pieces of an expression from left to right."""


@dataclass(frozen=True)
class Block:
    """Lines of equal width, one of which is aligned with the neighbors of the block."""

    lines: list[str]
    baseline: int

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return max(map(get_width, self.lines))


def get_width(text: str) -> int:
    """Return the number of columns of a text on a terminal. Combining accents take none."""
    return sum(not unicodedata.combining(c) for c in text)


def join_row(row: Row) -> str:
    """Write a row on one line."""
    return tidy_spaces("".join(piece if isinstance(piece, str) else _write_fraction(piece) for piece in row))


def _write_fraction(fraction: Fraction) -> str:
    return f" {add_brackets(join_row(fraction.above))} / {add_brackets(join_row(fraction.below))} "


def tidy_spaces(text: str) -> str:
    """Remove needless spaces: doubled, inside brackets, and before commas. Accents join their letters."""
    text = re.sub(rf"\s*{TIGHT}\s*|\s+", lambda space: "" if TIGHT in space[0] else " ", text)
    return unicodedata.normalize("NFC", re.sub(r"(?<=[(\[⟨]) | (?=[)\],;:⟩])", "", text).strip())


def add_brackets(text: str) -> str:
    """Put a text in brackets unless it reads as one symbol.

    Symbols with scripts, numbers, and texts in brackets or bars stay as they are.
    """
    base = "".join(c for c in text if unicodedata.category(c) not in ("Lm", "Mn", "No"))
    if len(base) <= 1 or base.isdigit() or re.fullmatch(r"\|[^|]*\|", text) or _ends_with_its_bracket(text):
        return text
    return f"({text})"


def _ends_with_its_bracket(text: str) -> bool:
    """Return True for "(a)", "exp(a)" and "e^(a)", but not for "(a)(b)"."""
    start = text.find("(")
    if start < 0 or not re.fullmatch(r"[\w^]*", text[:start]):
        return False
    depth = 0
    for i, mark in enumerate(text[start:], start=start):
        depth += (mark == "(") - (mark == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def lay_out_row(row: Row) -> Block:
    """Lay out a row with each fraction in three lines."""
    blocks, text = [], ""
    for piece in row:
        if isinstance(piece, str):
            text += piece
            continue
        blocks += [_make_text_block(text, bool(blocks), True), _stack(lay_out_row(piece.above), lay_out_row(piece.below))]
        text = ""
    return _place_side_by_side([*blocks, _make_text_block(text, bool(blocks), False)])


def _make_text_block(text: str, after: bool, before: bool) -> Block:
    """Return one line as a block, with spaces between it and fractions.

    No space separates a bracket from the fraction in it.
    """
    text = tidy_spaces(text)
    left = " " if after and text and text[0] not in ")],;" else ""
    right = " " if before and text and text[-1] not in "([" and not (after and text == ",") else ""
    return Block([f"{left}{text}{right}"], 0)


def _stack(above: Block, below: Block) -> Block:
    """Put one block above another, with a bar between them."""
    width = max(above.width, below.width) + 2
    lines = [*(_center(line, width) for line in above.lines), "─" * width, *(_center(line, width) for line in below.lines)]
    return Block(lines, len(above.lines))


def _center(line: str, width: int) -> str:
    left = (width - get_width(line)) // 2
    return " " * left + line + " " * (width - get_width(line) - left)


def _place_side_by_side(blocks: list[Block]) -> Block:
    """Join blocks at their baselines."""
    top = max(block.baseline for block in blocks)
    bottom = max(len(block.lines) - block.baseline for block in blocks)
    lines = [""] * (top + bottom)
    for block in blocks:
        offset = top - block.baseline
        for i in range(len(lines)):
            line = block.lines[i - offset] if 0 <= i - offset < len(block.lines) else ""
            lines[i] += line + " " * (block.width - get_width(line))
    return Block(lines, top)
