"""From what a user sent to what the net takes: one tensor a sample. Everything here is the user's, hence every mistake is a 4xx."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from nearfar.core import NearfarError
from nearfar.data.image_text.dataset import as_texts
from nearfar.data.images.decode import flat, is_grey, pixels_of, square, upright
from nearfar.server.limits import Limits, Refused
from nearfar.train.model import Trained

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
STRETCH = 16
"""Token ids are padded to a multiple of this: few shapes, and a text's own length alone decides which."""
TAKES = {
    "text": ("texts",), "words": ("texts",), "image": ("images",), "audio": ("sounds",), "image-text": ("texts", "images"),
}  # fmt: skip
"""What a run on each kind of data can embed."""


def prepare(trained: Trained | None, kind: str, samples: Sequence[Any], limits: Limits) -> list[Tensor]:
    """Texts (strings), images or sounds (bytes of files) as tensors of a single sample each."""
    takes = () if trained is None else TAKES.get(trained.recipe.card.modality, ())
    if trained is None or kind not in takes:
        raise Refused(422, f"this model cannot embed {kind}: it takes {', '.join((*takes, 'vectors'))} and rows")
    if kind == "texts":
        return _texts(trained, samples, limits)
    make = _image if kind == "images" else _sound
    return [make(trained, data, number, limits) for number, data in enumerate(samples)]


def _texts(trained: Trained, texts: Sequence[str], limits: Limits) -> list[Tensor]:
    for number, text in enumerate(texts):
        if len(text) > limits.text:
            raise Refused(413, f"text {number} has {len(text):,} characters; {limits.text:,} are allowed")
        if not text.strip():
            raise Refused(422, f"text {number} is empty")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(422, f"text {number} is not Unicode: it holds half of a surrogate pair") from None
    try:
        (data,) = trained.inputs.accept(as_texts(texts) if "text" in trained.net.sizes else list(texts))
    except NearfarError as e:  # a word that the vocabulary does not have
        raise Refused(422, str(e)) from e
    return [_stretched(data.read(np.array([i]))[0], trained) for i in range(len(texts))]


def _stretched(ids: Tensor, trained: Trained) -> Tensor:
    """Token ids of one text, padded to a multiple of `STRETCH`, at most to the length of the net; a single word stays as it is."""
    if not ids.ndim:
        return ids
    assert trained.tokenizer is not None
    sizes = trained.net.sizes.get("text", trained.net.sizes)
    width = max(len(ids), min(-(-len(ids) // STRETCH) * STRETCH, sizes["length"]))
    return torch.nn.functional.pad(ids, (0, width - len(ids)), value=trained.tokenizer.special["pad"])


def _image(trained: Trained, data: bytes, number: int, limits: Limits) -> Tensor:
    """Brought to the net's size as files are; its header is asked for its size before a pixel is decoded."""
    size = trained.net.sizes["size"]
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > limits.pixels:
                raise Refused(413, f"image {number} has {image.width:,} x {image.height:,} pixels; {limits.pixels:,} are allowed")
            image.draft(None, (2 * size, 2 * size))
            pixels = pixels_of(square(flat(upright(image), 1 if is_grey(image) else 3), size))
    except (Refused, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise Refused(413, f"image {number} has far more than {limits.pixels:,} pixels") from None
    except UnidentifiedImageError:
        raise Refused(422, f"image {number} is not a JPEG, PNG, WebP, BMP or GIF image") from None
    except Exception as e:  # Pillow's readers raise many kinds of exceptions on damaged bytes
        raise Refused(422, f"image {number} is damaged") from e
    (brought,) = trained.inputs.accept(torch.from_numpy(pixels.copy())[None])  # grey as colour, colour as grey: as files are
    return brought.read(np.array([0]))[0]


def _sound(trained: Trained, data: bytes, number: int, limits: Limits) -> Tensor:
    import soundfile

    from nearfar.data.audio.dataset import of_length, quantised
    from nearfar.data.audio.readers import resampled

    sizes = trained.net.sizes
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            seconds = file.frames / file.samplerate
            if seconds > limits.seconds_of_sound:
                raise Refused(413, f"sound {number} is {seconds:,.0f} seconds long; {limits.seconds_of_sound:,.0f} are allowed")
            wave, rate = file.read(dtype="float32", always_2d=True).mean(1), file.samplerate
    except (Refused, MemoryError):
        raise
    except Exception as e:
        raise Refused(422, f"sound {number} cannot be decoded") from e
    if not len(wave) or not np.isfinite(wave).all():
        raise Refused(422, f"sound {number} has no sound in it")
    clip = torch.from_numpy(quantised(resampled(wave, rate, sizes["rate"])))
    return of_length(clip[None], sizes["samples"])[0]
