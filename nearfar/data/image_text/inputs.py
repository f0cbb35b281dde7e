"""Inputs of the image-text modality.

Training uses images with captions. A trained model also takes images or texts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer, load_pretrained_tokenizer, train_tokenizer
from nearfar.data.image_text.dataset import CaptionedImages, as_texts
from nearfar.data.image_text.load import adapt_captioned_images, is_captioned, load_all_captions, load_captions
from nearfar.data.images.decode import IMAGE_EXTENSIONS
from nearfar.data.images.image_adapter import adapt_images, as_images, load_all_images
from nearfar.data.text.dataset import Texts


@dataclass(frozen=True)
class ImageTextInputs(Inputs):
    """Inputs of the image-text modality."""

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None
    """Tokenizer of a trained model.

    None uses the tokenizer that the run's settings name, or trains one on the captions of the training split.
    """

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        """Load captioned images as a training and a test split."""
        size = config.image_size if self.sizes is None else self.sizes["size"]
        found = load_captions(
            spec, ImageReadOptions(size, config.on_error, progress), seed=config.seed, columns=config.columns, test_ids=test_ids
        )
        tokenizer = self.tokenizer or _tokenizer(config, found.train)
        train, test = (None if p is None else self._fit(p).tokenize(tokenizer, config.max_length) for p in (found.train, found.test))
        return Splits(train, test, found.test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load all images, with or without captions."""
        assert self.sizes is not None
        if is_captioned(spec):
            found = load_all_captions(spec, ImageReadOptions(self.sizes["size"], config.on_error, progress), config.columns)
            return [part.images for part in (found.train, found.test) if part is not None]
        found = load_all_images(spec, image_size=self.sizes["size"], on_error=config.on_error, progress=progress)
        return [part for part in (found.train, found.test) if part is not None]

    def adapt(self, samples: Any) -> list[Any]:
        """Convert images or texts to the form that the model takes.

        Captioned images become their images. A list of strings that name no image files becomes texts.
        """
        assert self.sizes is not None
        if isinstance(samples, CaptionedImages):
            return [adapt_images(samples.images, self.sizes["channels"], self.sizes["size"])]
        if isinstance(samples, Texts):
            return [self._coded(samples)]
        if _are_texts(samples):
            return [self._coded(as_texts(samples))]
        if is_captioned(samples):
            found = load_all_captions(samples, ImageReadOptions(self.sizes["size"]))
            return [part for whole in (found.train, found.test) if whole is not None for part in self.adapt(whole)]
        return as_images(samples, channels=self.sizes["channels"], size=self.sizes["size"])

    def _fit(self, data: CaptionedImages) -> CaptionedImages:
        return data if self.sizes is None else adapt_captioned_images(data, self.sizes["channels"], self.sizes["size"])

    def _coded(self, texts: Texts) -> Texts:
        assert self.sizes is not None
        if self.tokenizer is None:
            raise UsageError("the tokenizer of this run is missing: there is no tokenizer.json in its folder")
        return texts.tokenize(self.tokenizer, self.sizes["text"]["max_length"])


def _are_texts(what: Any) -> bool:
    strings = isinstance(what, (list, tuple)) and len(what) > 0 and all(isinstance(text, str) for text in what)
    return strings and not any(Path(text).suffix.lower() in IMAGE_EXTENSIONS for text in what)


def _tokenizer(config: TrainConfig, train: CaptionedImages) -> Tokenizer:
    if config.tokenizer != "auto":
        return load_pretrained_tokenizer(config.tokenizer)
    return train_tokenizer(train.get_unique_captions(), config.vocab_size)
