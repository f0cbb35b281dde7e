"""What the data of a modality promise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from nearfar.core import Recipe, Run, UsageError
from nearfar.data.common.splits import Splits

Progress = Callable[[int, int], None]
OF_SOME_DATA = ("image_size", "rate", "seconds", "columns", "tokenizer", "vocabulary", "min_count", "length")
"""Settings of a run that are about data of some modalities, and do nothing to those of others."""


class Inputs(ABC):
    """The data of one modality. Built without a net they are opened as the run says; with one, they are brought to what it takes."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Which of these settings are about data of this modality."""

    def refuse_foreign(self, given: Mapping[str, Any], recipe: Recipe) -> None:
        """A setting that was asked for and would do nothing is a mistake."""
        for name in OF_SOME_DATA:
            if given.get(name) is not None and name not in self.reads:
                flag, kind = name.replace("_", "-"), recipe.card.modality
                raise UsageError(
                    f"--{flag} does nothing to data of the kind {kind!r}, which {type(recipe).__name__} learns from: leave it out"
                )

    @abstractmethod
    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        """A training and a test split; `split`: the test rows that an earlier run stored."""

    @abstractmethod
    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """Everything there is, in the order of the source: one part, or two where the data bring a split."""

    @abstractmethod
    def accept(self, what: Any) -> list[Any]:
        """As `all`, of anything that a user may hand to a trained net: opened data too."""
