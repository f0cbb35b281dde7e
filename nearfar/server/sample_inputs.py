"""Preparation of user inputs for the net: one tensor per sample.

Every error is a 4xx response.
"""

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
from nearfar.data.images.decode import convert_channels, crop_and_resize, is_gray, rotate_upright, to_pixel_array
from nearfar.server.limits import Limits, RequestError
from nearfar.train.model import Model

IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
TOKEN_PADDING_MULTIPLE = 16
"""Token ids are padded to a multiple of this number. There are few shapes, and only a text's own length
decides its shape."""


def prepare_samples(model: Model | None, input_type: str, samples: Sequence[Any], limits: Limits) -> list[Tensor]:
    """Convert texts (strings), images or sounds (file bytes) to one tensor per sample.

    Raises:
        RequestError: if the model does not accept the input type, or if a sample is invalid or too large.
    """
    takes = () if model is None else model.modality.input_types
    if model is None or input_type not in takes:
        raise RequestError(422, f"this model cannot embed {input_type}: it takes {', '.join((*takes, 'vectors'))} and rows")
    if input_type == "texts":
        return _prepare_texts(model, samples, limits)
    make = _prepare_image if input_type == "images" else _prepare_sound
    return [make(model, data, number, limits) for number, data in enumerate(samples)]


def _prepare_texts(model: Model, texts: Sequence[str], limits: Limits) -> list[Tensor]:
    for number, text in enumerate(texts):
        if len(text) > limits.text_characters:
            raise RequestError(413, f"text {number} has {len(text):,} characters; {limits.text_characters:,} are allowed")
        if not text.strip():
            raise RequestError(422, f"text {number} is empty")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError(422, f"text {number} is not Unicode: it holds half of a surrogate pair") from None
    try:
        (data,) = model.inputs.adapt(as_texts(texts) if "text" in model.net.sizes else list(texts))
    except NearfarError as e:  # such as a word outside the vocabulary
        raise RequestError(422, str(e)) from e
    return [_pad_token_ids(data.read(np.array([i]))[0], model) for i in range(len(texts))]


def _pad_token_ids(ids: Tensor, model: Model) -> Tensor:
    """Pad the token ids of one text to a multiple of `TOKEN_PADDING_MULTIPLE`.

    The result is at most as long as the net allows. A single word is not padded.
    """
    if not ids.ndim:
        return ids
    assert model.tokenizer is not None
    sizes = model.net.sizes.get("text", model.net.sizes)
    width = max(len(ids), min(-(-len(ids) // TOKEN_PADDING_MULTIPLE) * TOKEN_PADDING_MULTIPLE, sizes["max_length"]))
    return torch.nn.functional.pad(ids, (0, width - len(ids)), value=model.tokenizer.special_ids["pad"])


def _prepare_image(model: Model, data: bytes, number: int, limits: Limits) -> Tensor:
    """Decode an image and resize it to the net's size, as for image files.

    The size in the header is checked before any pixel is decoded.
    """
    size = model.net.sizes["size"]
    try:
        with Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
            if image.width * image.height > limits.image_pixels:
                raise RequestError(
                    413, f"image {number} has {image.width:,} x {image.height:,} pixels; {limits.image_pixels:,} are allowed"
                )
            image.draft(None, (2 * size, 2 * size))
            pixels = to_pixel_array(crop_and_resize(convert_channels(rotate_upright(image), 1 if is_gray(image) else 3), size))
    except (RequestError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise RequestError(413, f"image {number} has far more than {limits.image_pixels:,} pixels") from None
    except UnidentifiedImageError:
        raise RequestError(422, f"image {number} is not a JPEG, PNG, WebP, BMP or GIF image") from None
    except Exception as e:  # Pillow's readers raise many kinds of exceptions on damaged bytes
        raise RequestError(422, f"image {number} is damaged") from e
    # Converts gray and color as for files.
    (brought,) = model.inputs.adapt(torch.from_numpy(pixels.copy())[None])
    return brought.read(np.array([0]))[0]


def _prepare_sound(model: Model, data: bytes, number: int, limits: Limits) -> Tensor:
    import soundfile

    from nearfar.data.audio.dataset import crop_or_pad, quantize_waveform
    from nearfar.data.audio.readers import resample

    sizes = model.net.sizes
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            seconds = file.frames / file.samplerate
            if seconds > limits.sound_seconds:
                raise RequestError(413, f"sound {number} is {seconds:,.0f} seconds long; {limits.sound_seconds:,.0f} are allowed")
            wave, rate = file.read(dtype="float32", always_2d=True).mean(1), file.samplerate
    except (RequestError, MemoryError):
        raise
    except Exception as e:
        raise RequestError(422, f"sound {number} cannot be decoded") from e
    if not len(wave) or not np.isfinite(wave).all():
        raise RequestError(422, f"sound {number} has no sound in it")
    clip = torch.from_numpy(quantize_waveform(resample(wave, rate, sizes["sample_rate"])))
    return crop_or_pad(clip[None], sizes["samples"])[0]
