"""Method cards: the columns of the survey's tables for one method."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Description of a method in the survey's terms.

    The command line, the docs, the report and the explorer read it.
    """

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
    """Equation in LaTeX, without delimiters."""
