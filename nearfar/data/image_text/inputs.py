"""Images with captions: to learn from both; to a trained net, images or texts alone are handed too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.core import Run, Sizes, UsageError
from nearfar.data.common.arrays import How
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer, pretrained_tokenizer, train_tokenizer
from nearfar.data.image_text.dataset import Captioned, as_texts
from nearfar.data.image_text.load import fitted, is_captioned, open_captioned, read_captioned
from nearfar.data.images.accept import adapted, as_images, read_all
from nearfar.data.images.decode import EXTENSIONS
from nearfar.data.text.dataset import Texts


@dataclass(frozen=True)
class ImageTextInputs(Inputs):
    reads = ("image_size", "columns", "tokenizer", "vocabulary", "length")

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None
    """None: the one that the run names, or one trained on the captions of the training split."""

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        size = run.image_size if self.sizes is None else self.sizes["size"]
        found = open_captioned(spec, How(size, run.on_error, progress), seed=run.seed, columns=run.columns, split=split)
        tokenizer = self.tokenizer or _tokenizer(run, found.train)
        train, test = (None if p is None else self._fit(p).tokenised(tokenizer, run.length) for p in (found.train, found.test))
        return Splits(train, test, found.test_ids)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        """The images, with captions or without."""
        assert self.sizes is not None
        if is_captioned(spec):
            found = read_captioned(spec, How(self.sizes["size"], run.on_error, progress), run.columns)
            return [part.images for part in (found.train, found.test) if part is not None]
        found = read_all(spec, image_size=self.sizes["size"], on_error=run.on_error, progress=progress)
        return [part for part in (found.train, found.test) if part is not None]

    def accept(self, what: Any) -> list[Any]:
        """Captioned images are their images; a list of strings that name no image files are texts."""
        assert self.sizes is not None
        if isinstance(what, Captioned):
            return [adapted(what.images, self.sizes["channels"], self.sizes["size"])]
        if isinstance(what, Texts):
            return [self._coded(what)]
        if _are_texts(what):
            return [self._coded(as_texts(what))]
        if is_captioned(what):
            found = read_captioned(what, How(self.sizes["size"]))
            return [part for whole in (found.train, found.test) if whole is not None for part in self.accept(whole)]
        return as_images(what, channels=self.sizes["channels"], size=self.sizes["size"])

    def _fit(self, data: Captioned) -> Captioned:
        return data if self.sizes is None else fitted(data, self.sizes["channels"], self.sizes["size"])

    def _coded(self, texts: Texts) -> Texts:
        assert self.sizes is not None
        if self.tokenizer is None:
            raise UsageError("this run has lost its tokenizer: tokenizer.json is missing from its folder")
        return texts.tokenised(self.tokenizer, self.sizes["text"]["length"])


def _are_texts(what: Any) -> bool:
    strings = isinstance(what, (list, tuple)) and len(what) > 0 and all(isinstance(text, str) for text in what)
    return strings and not any(Path(text).suffix.lower() in EXTENSIONS for text in what)


def _tokenizer(run: Run, train: Captioned) -> Tokenizer:
    if run.tokenizer != "auto":
        return pretrained_tokenizer(run.tokenizer)
    return train_tokenizer(train.every_caption(), run.vocabulary)
