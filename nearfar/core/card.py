"""Where a method stands in the framework: the columns of the survey's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """A method in the survey's terms. The command line, the docs, the report and the explorer read it."""

    title: str
    paper: str
    year: int
    modality: str
    similarity: str
    query: str
    positive: str
    negative: str
    encoder: str
    head: str
    score: str
    loss: str
    equation: str
    """LaTeX without delimiters."""
