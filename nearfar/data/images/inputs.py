"""Images, brought to the channels and the size a net was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Run, Sizes
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.splits import Splits
from nearfar.data.images.accept import adapted, as_images, read_all
from nearfar.data.images.load import open_data


@dataclass(frozen=True)
class ImageInputs(Inputs):
    reads = ("image_size",)

    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        size = run.image_size if self.sizes is None else self.sizes["size"]
        found = open_data(spec, seed=run.seed, image_size=size, on_error=run.on_error, split=split, progress=progress)
        return Splits(self._fit(found.train), None if found.test is None else self._fit(found.test), found.test_ids)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        assert self.sizes is not None
        found = read_all(spec, image_size=self.sizes["size"], on_error=run.on_error, progress=progress)
        return [part for part in (found.train, found.test) if part is not None]

    def accept(self, what: Any) -> list[Any]:
        assert self.sizes is not None
        return as_images(what, channels=self.sizes["channels"], size=self.sizes["size"])

    def _fit(self, images: Any) -> Any:
        return images if self.sizes is None else adapted(images, self.sizes["channels"], self.sizes["size"])
