"""What the data of a modality promise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from nearfar.core import Run
from nearfar.data.split import Splits

Progress = Callable[[int, int], None]


class Inputs(ABC):
    """The data of one modality. Built without a net they are opened as the run says; with one, they are brought to what it takes."""

    @abstractmethod
    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        """A training and a test split; `split`: the test rows that an earlier run stored."""

    @abstractmethod
    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """Everything there is, in the order of the source: one part, or two where the data bring a split."""

    @abstractmethod
    def accept(self, what: Any) -> list[Any]:
        """As `all`, of anything that a user may hand to a trained net: opened data too."""
