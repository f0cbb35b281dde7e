"""What the data of a modality promise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nearfar.core import Recipe, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.splits import Splits

MODALITY_SETTINGS = ("image_size", "sample_rate", "seconds", "columns", "tokenizer", "vocab_size", "min_count", "max_length")
"""Settings of a run that are about data of some modalities, and do nothing to those of others."""


class Inputs(ABC):
    """The data of one modality. Built without a net they are opened as the run says; with one, they are brought to what it takes."""

    used_settings: ClassVar[tuple[str, ...]] = ()
    """Which of these settings are about data of this modality."""

    def check_settings(self, settings: Mapping[str, Any], recipe: Recipe) -> None:
        """A setting that was asked for and would do nothing is a mistake."""
        for name in MODALITY_SETTINGS:
            if settings.get(name) is not None and name not in self.used_settings:
                flag, kind = name.replace("_", "-"), recipe.card.modality
                raise UsageError(
                    f"--{flag} does nothing to data of the kind {kind!r}, which {type(recipe).__name__} learns from: leave it out"
                )

    @abstractmethod
    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        """A training and a test split; `split`: the test rows that an earlier run stored."""

    @abstractmethod
    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Everything there is, in the order of the source: one part, or two where the data bring a split."""

    @abstractmethod
    def adapt(self, samples: Any) -> list[Any]:
        """As `all`, of anything that a user may hand to a trained net: opened data too."""
