"""Interface of the inputs of a modality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from nearfar.core import TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.splits import Splits


class Inputs(ABC):
    """Loader of the data of one modality, for training and for trained models.

    Without the sizes of a model, data are opened as the settings of the run say. With the sizes of a model,
    data are adapted to that model.
    """

    @abstractmethod
    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        """Load data as a training and a test split.

        Args:
            spec: Name, path or object that holds the data.
            config: Settings of the run.
            test_ids: Test rows stored by an earlier run.
            progress: Called as progress(done, total) while data are read.
        """

    @abstractmethod
    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load all samples, in the order of the source.

        Returns:
            One dataset, or two if the data bring their own split.
        """

    @abstractmethod
    def adapt(self, samples: Any) -> list[Any]:
        """Convert samples to the form that a trained model takes.

        Args:
            samples: Anything that a user may pass to a trained model, such as a path, an array or an opened
                dataset.

        Returns:
            One or two datasets, as `load_all` returns.
        """
