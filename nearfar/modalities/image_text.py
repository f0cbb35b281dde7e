"""Pictures with captions are measured by finding each other, both ways, and by naming classes in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.api.evaluate import splits_of
from nearfar.core import Key, UsageError
from nearfar.data.image_text.dataset import Captioned
from nearfar.evaluate import Table
from nearfar.evaluate.cross_modal import EncodeTexts, borrowed_words, class_vectors, recall_at, zero_shot
from nearfar.modalities.image import raw_images
from nearfar.modalities.interface import Evaluation, Kind, Pair, Progress
from nearfar.modalities.named_rows import protocol, row
from nearfar.modalities.sprites import Sheet, sprite_sheet
from nearfar.train.model import Trained

KS = (1, 5, 10)
MOST_IMAGES = 20_000
"""Training images that the floor borrows words from, and that a report looks for neighbours in, at most."""
TITLES = {f"{way}_{k}": f"{title} R@{k}" for way, title in (("to_text", "image→text"), ("to_image", "text→image")) for k in KS}
NOTES = [
    "Recall at k, in per cent: {images:,} test images look for their captions among {captions:,} different ones (any of its own counts), "
    "each of these captions for its images. No test image was seen in training. Equal scores: the mean over their orders.",
    "Borrowed words: an image is the mean tf-idf vector of the captions of the 10 training images nearest in raw pixels.",
]
ZERO_SHOT = "Zero-shot: which of {classes} classes is nearest, each named as {prompts} (mean of the prompts' vectors)."


class ImageTextKind(Kind):
    """Its recipes have towers for both ("image", "text") and `prompts`, in which a class is put into words."""

    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation:
        splits = splits_of(trained, data, progress)
        train, test = splits.train, splits.test
        if test is None:
            raise UsageError(f"{train.source} has no test split and is too small to draw one: nothing to evaluate on")
        chosen, untrained = _chosen(train, Key(trained.run.seed)("evaluate")), trained.untrained()
        pixels = [raw_images(part.images).flatten(1) for part in (test, chosen)]
        vectors = [who.encode(test, progress=progress) for who in (trained, untrained)]
        rivals: dict[str, tuple[Tensor, EncodeTexts]] = {
            "chance": (torch.ones(len(test), 1), lambda texts: torch.ones(len(texts), 1)),
            "borrowed words": borrowed_words(pixels[0], pixels[1], [chosen.captions_of(i) for i in range(len(chosen))]),
            "untrained encoders": (vectors[1], untrained.encode),
            "trained encoders": (vectors[0], trained.encode),
        }
        prompts = getattr(trained.recipe, "prompts", ("a photo of a {}",))
        results = [row(name, name != "trained encoders") | measured(test, *rival, prompts) for name, rival in rivals.items()]
        notes = [line.format(images=len(test), captions=len(test.every_caption())) for line in NOTES]
        titles = dict(TITLES)
        if "zero_shot" in results[0]:
            titles["zero_shot"] = "zero-shot"
            notes.append(ZERO_SHOT.format(classes=len(test.classes), prompts=" / ".join(f"'{p}'" for p in prompts)))
        table = Table(results, protocol(trained, notes, accuracies=titles))
        return Evaluation(table, splits, chosen, trained.encode(chosen, progress=progress), vectors[0], vectors[1])

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[list[Shown], list[Shown]]:
        assert trained.tokenizer is not None
        return [Shown(picture) for picture in views[0]], [Shown(text=trained.tokenizer.decode(row)) for row in views[1].tolist()]

    def summary(self, train: Captioned) -> str:
        return f"{len(train):,} training images of {train.images.shape[2]} x {train.images.shape[1]} pixels, with captions"

    def shown(self, data: Captioned) -> Callable[[Tensor], Tensor]:
        return lambda ids: (data.read(ids.reshape(-1).numpy()).float() / 255).unflatten(0, ids.shape)


@dataclass(frozen=True, eq=False)
class Shown:
    """One side of a pair as a report shows it: a picture, or a text."""

    picture: Tensor | None = None
    text: str = ""

    def sheet(self, others: list[Shown]) -> PairSheet:
        """All pictures come first."""
        pictures = [other.picture for other in others if other.picture is not None]
        return PairSheet(sprite_sheet(torch.stack(pictures).cpu()), len(pictures), [o.text for o in others if o.picture is None])


@dataclass(frozen=True)
class PairSheet:
    """The counterpart of `Sheet` for pictures with texts beside them."""

    pictures: Sheet
    count: int
    texts: list[str]

    @property
    def style(self) -> str:
        return self.pictures.style

    def cell(self, index: int, title: str) -> str:
        if index < self.count:
            return self.pictures.cell(index, title)
        return f'<q class="words" style="--w:22ch" title="{escape(title)}">{escape(self.texts[index - self.count])}</q>'


def measured(test: Captioned, images: Tensor, encode: EncodeTexts, prompts: tuple[str, ...]) -> dict[str, float]:
    """Recall both ways and, where images have classes, zero-shot accuracy."""
    captions = test.every_caption()
    right, texts = own_captions(test, captions), encode(captions)
    found = {f"to_text_{k}": value for k, value in recall_at(images, texts, right, KS).items()}
    found |= {f"to_image_{k}": value for k, value in recall_at(texts, images, right.flip(1), KS).items()}
    if test.labels is not None and len(test.classes) > 1:
        found["zero_shot"] = zero_shot(images, torch.as_tensor(test.labels), class_vectors(test.classes, prompts, encode))
    return found


def own_captions(test: Captioned, captions: list[str]) -> Tensor:
    """Pairs (image, caption) of what was said of each image, (p, 2)."""
    number = {text: i for i, text in enumerate(captions)}
    return torch.tensor(sorted({(i, number[text]) for i in range(len(test)) for text in test.captions_of(i)}))


def _chosen(train: Captioned, key: Key) -> Captioned:
    return train if len(train) <= MOST_IMAGES else train.subset(np.sort(key("chosen").permutation(len(train))[:MOST_IMAGES]))
