"""Method cards: the columns of the survey's tables for one method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from nearfar.core.errors import UsageError, suggest_similar_names

LossFamily = Literal[
    "energy and margin", "NCE and softmax", "mutual information", "clustering", "no negatives", "classification", "closed form", "other"
]  # fmt: skip
"""Families of losses: the survey's three (by the paper's motivation), losses with implicit constraints in place
of negatives, and losses over fixed classes or without training."""
SimilarityType = Literal[
    "multisensory", "data transformation", "context-instance", "sequential coherence", "natural clustering", "labels", "none", "other"
]  # fmt: skip
"""Sources of similar samples: the survey's five, labels of any kind, and none."""
HeadType = Literal["none", "projection", "contextualization", "quantization", "classifier", "relation", "other"]
"""Transform heads: the survey's three, a classifier (of labels or clusters), and a relation of a knowledge graph."""


@dataclass(frozen=True)
class Card:
    """Description of a method in the survey's terms.

    The command line, the docs, the report and the explorer read it. The last three fields sort methods for
    `nearfar list`.
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
    family: LossFamily = "other"
    """Family of the loss."""
    similarity_type: tuple[SimilarityType, ...] = ("other",)
    """Sources of similar samples."""
    head_type: tuple[HeadType, ...] = ("other",)
    """Kinds of transform heads."""

    def __post_init__(self):
        self._check("family", [self.family], get_args(LossFamily))
        for name, values, known in (
            ("similarity_type", self.similarity_type, get_args(SimilarityType)),
            ("head_type", self.head_type, get_args(HeadType)),
        ):
            if not isinstance(values, tuple) or not values:
                raise UsageError(f'card of {self.title!r}: {name} must be a tuple, such as ("{known[0]}",), got {values!r}')
            self._check(name, values, known)

    def _check(self, name: str, values: Iterable[object], known: tuple[str, ...]) -> None:
        for value in values:
            if value not in known:
                near = suggest_similar_names(str(value), known)
                raise UsageError(f"card of {self.title!r}: {name} must be one of {', '.join(known)}, got {value!r}.{near}")
