"""Inputs of the image modality, adapted to the channels and size of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Sizes, TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.images.image_adapter import adapt_images, as_images, load_all_images
from nearfar.data.images.load import load_images


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """Inputs of the image modality."""

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        """Load images as a training and a test split."""
        size = config.image_size if self.sizes is None else self.sizes["size"]
        found = load_images(spec, seed=config.seed, image_size=size, on_error=config.on_error, test_ids=test_ids, progress=progress)
        return Splits(self._fit(found.train), None if found.test is None else self._fit(found.test), found.test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load all images, in the order of the source."""
        assert self.sizes is not None
        found = load_all_images(spec, image_size=self.sizes["size"], on_error=config.on_error, progress=progress)
        return [part for part in (found.train, found.test) if part is not None]

    def adapt(self, samples: Any) -> list[Any]:
        """Convert images to the channels and the size of the model."""
        assert self.sizes is not None
        return as_images(samples, channels=self.sizes["channels"], size=self.sizes["size"])

    def _fit(self, images: Any) -> Any:
        return images if self.sizes is None else adapt_images(images, self.sizes["channels"], self.sizes["size"])
