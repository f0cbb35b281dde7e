"""Modality of captioned images: retrieval in both directions and zero-shot classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation, Modality, SampleMedia, ViewPair
from nearfar.core.progress import ProgressCallback
from nearfar.data import Tokenizer
from nearfar.data.image_text.dataset import CaptionedImages, as_texts
from nearfar.data.image_text.inputs import ImageTextInputs
from nearfar.evaluate import ResultTable
from nearfar.evaluate.cross_modal import EncodeTexts, build_neighbor_caption_baseline, encode_class_prompts, recall_at, zero_shot_accuracy
from nearfar.modalities.embedding_tables import build_protocol, build_result_row
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.modalities.image import PIXEL_DIFFERENCE_NOTE, build_image_signature, read_duplicate_features, read_raw_pixels
from nearfar.modalities.media import encode_image_file_png, encode_png
from nearfar.modalities.sprites import SampleCell, SpriteSheet, build_sprite_sheet
from nearfar.modalities.text import build_text_signature
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

RECALL_KS = (1, 5, 10)
MAX_TRAIN_IMAGES = 20_000
"""Largest number of training images for the caption baseline and the neighbors of a report."""
CROSS_MODAL_TITLES = {
    f"{way}_{k}": f"{title} R@{k}" for way, title in (("to_text", "image→text"), ("to_image", "text→image")) for k in RECALL_KS
}
CROSS_MODAL_NOTES = [
    "Recall at k, in per cent: {images:,} test images look for their captions among {captions:,} different ones (any of its own counts), "
    "each of these captions for its images. No test image was seen in training. Equal scores: the mean over their orders.",
    "Borrowed words: an image is the mean tf-idf vector of the captions of the 10 training images nearest in raw pixels.",
]
ZERO_SHOT_NOTE = "Zero-shot: which of {classes} classes is nearest, each named as {prompts} (mean of the prompts' vectors)."


class ImageTextModality(Modality):
    """Images with captions.

    The recipes have towers for "image" and "text". Their `prompts` turn a class name into a text.
    """

    name = "image-text"
    plural = "images with captions"
    reveals_copies = True
    settings = ("image_size", "columns", "tokenizer", "vocab_size", "max_length")
    data_help = "Images with captions: 'digits-captions', a table with the columns image and caption, or the Flickr8k folder."
    encoder_help = "Images: convnet, resnet18, resnet34, resnet50, or hf:NAME-OR-FOLDER. auto: convnet up to 40 pixels, resnet18 above."
    bundled = ("digits-captions",)
    media = SampleMedia(picture=True, difference=PIXEL_DIFFERENCE_NOTE)
    input_types = ("texts", "images")
    rowwise_encoder = "convnet-gn"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> ImageTextInputs:
        return ImageTextInputs(sizes, tokenizer)

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        splits = load_model_splits(model, data, progress)
        train, test = splits.train, splits.test
        if test is None:
            raise UsageError(f"{train.source} has no test split and is too small to draw one: nothing to evaluate on")
        chosen, untrained = _select_train_samples(train, RandomKey(model.config.seed)("evaluate")), model.build_untrained()
        pixels = [read_raw_pixels(part.images).flatten(1) for part in (test, chosen)]
        vectors = [who.encode(test, progress=progress) for who in (model, untrained)]
        rivals: dict[str, tuple[Tensor, EncodeTexts]] = {
            "chance": (torch.ones(len(test), 1), lambda texts: torch.ones(len(texts), 1)),
            "borrowed words": build_neighbor_caption_baseline(pixels[0], pixels[1], [chosen.get_captions(i) for i in range(len(chosen))]),
            "untrained encoders": (vectors[1], untrained.encode),
            "trained encoders": (vectors[0], model.encode),
        }
        prompts = getattr(model.recipe, "prompts", ("a photo of a {}",))
        results = [
            build_result_row(name, name != "trained encoders") | measure_cross_modal(test, *rival, prompts)
            for name, rival in rivals.items()
        ]
        notes = [line.format(images=len(test), captions=len(test.get_unique_captions())) for line in CROSS_MODAL_NOTES]
        titles = dict(CROSS_MODAL_TITLES)
        if "zero_shot" in results[0]:
            titles["zero_shot"] = "zero-shot"
            notes.append(ZERO_SHOT_NOTE.format(classes=len(test.classes), prompts=" / ".join(f"'{p}'" for p in prompts)))
        table = ResultTable(results, build_protocol(model, notes, accuracies=titles))
        return Evaluation(table, splits, chosen, model.encode(chosen, progress=progress), vectors[0], vectors[1])

    def render_views(self, model: Model, views: ViewPair) -> tuple[list[RenderedView], list[RenderedView]]:
        assert model.tokenizer is not None
        return [RenderedView(picture) for picture in views[0]], [
            RenderedView(text=model.tokenizer.decode(row)) for row in views[1].tolist()
        ]

    def summarize_data(self, train: CaptionedImages) -> str:
        return f"{len(train):,} training images of {train.images.shape[2]} x {train.images.shape[1]} pixels, with captions"

    def build_sample_renderer(self, data: CaptionedImages) -> Callable[[Tensor], Tensor]:
        return lambda ids: (data.read(ids.reshape(-1).numpy()).float() / 255).unflatten(0, ids.shape)

    def read_raw_features(self, model: Model, data: CaptionedImages, ids: np.ndarray) -> Tensor:
        """Return the pixels of small copies of some images."""
        return read_duplicate_features(data.images, ids)

    def parse_query(self, model: Model, query: str) -> Any:
        """Return the query as a text. "text:17" is the text 17."""
        text = query.removeprefix("text:")
        return [text] if query == text else as_texts([text])

    def encode_sample_png(self, part: Any, i: int) -> bytes:
        return encode_png(part.read(np.array([i]))[0].cpu().numpy())

    def encode_file_png(self, path: str) -> bytes | None:
        return encode_image_file_png(path)

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        sizes = model.net.sizes
        return {"image": build_image_signature(sizes), "text": build_text_signature(sizes["text"])}


@dataclass(frozen=True, eq=False)
class RenderedView:
    """One side of a pair in a report: an image or a text."""

    picture: Tensor | None = None
    text: str = ""

    def build_sheet(self, views: list[RenderedView]) -> ImageTextSheet:
        """Return the sheet of several views.

        All images come first.
        """
        pictures = [other.picture for other in views if other.picture is not None]
        return ImageTextSheet(build_sprite_sheet(torch.stack(pictures).cpu()), len(pictures), [o.text for o in views if o.picture is None])


@dataclass(frozen=True)
class ImageTextSheet:
    """Counterpart of `SpriteSheet` for images and texts."""

    pictures: SpriteSheet
    picture_count: int
    texts: list[str]

    @property
    def style(self) -> str:
        """Return the style attribute of the images."""
        return self.pictures.style

    def get_cell(self, index: int) -> SampleCell:
        """Return the cell of one image or text."""
        if index < self.picture_count:
            return self.pictures.get_cell(index)
        return SampleCell(text=self.texts[index - self.picture_count], text_width="22ch")


def measure_cross_modal(
    test: CaptionedImages, image_vectors: Tensor, encode_texts: EncodeTexts, prompts: tuple[str, ...]
) -> dict[str, float]:
    """Compute recall in both directions, and zero-shot accuracy if images have classes.

    Args:
        test: test images with captions.
        image_vectors: vectors of the test images, (n, d).
        encode_texts: function from strings to vectors.
        prompts: templates of class prompts.
    """
    captions = test.get_unique_captions()
    right, texts = match_captions(test, captions), encode_texts(captions)
    found = {f"to_text_{k}": value for k, value in recall_at(image_vectors, texts, right, RECALL_KS).items()}
    found |= {f"to_image_{k}": value for k, value in recall_at(texts, image_vectors, right.flip(1), RECALL_KS).items()}
    if test.labels is not None and len(test.classes) > 1:
        found["zero_shot"] = zero_shot_accuracy(
            image_vectors, torch.as_tensor(test.labels), encode_class_prompts(test.classes, prompts, encode_texts)
        )
    return found


def match_captions(test: CaptionedImages, captions: list[str]) -> Tensor:
    """Return the pairs (image, caption) that belong together, (p, 2)."""
    number = {text: i for i, text in enumerate(captions)}
    return torch.tensor(sorted({(i, number[text]) for i in range(len(test)) for text in test.get_captions(i)}))


def _select_train_samples(train: CaptionedImages, rng_key: RandomKey) -> CaptionedImages:
    return train if len(train) <= MAX_TRAIN_IMAGES else train.subset(np.sort(rng_key("chosen").permutation(len(train))[:MAX_TRAIN_IMAGES]))
