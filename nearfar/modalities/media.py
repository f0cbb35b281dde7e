"""Thumbnails and sound files of samples, as bytes for the server."""

from __future__ import annotations

import io
import wave

import numpy as np
from PIL import Image

MAX_IMAGE_PIXELS_PER_SIDE = 192
"""Largest side of a shown image in pixels. Smaller images keep their size."""
SHOWN_IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode (c, h, w) pixels, gray or color, as a PNG file."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    return _encode_thumbnail(image)


def encode_image_file_png(path: str) -> bytes | None:
    """Encode the thumbnail of an image file as a PNG file.

    Returns None if the file cannot be read.
    """
    try:
        with Image.open(path, formats=SHOWN_IMAGE_FORMATS) as image:
            image.thumbnail((MAX_IMAGE_PIXELS_PER_SIDE, MAX_IMAGE_PIXELS_PER_SIDE))
            return _encode_thumbnail(image.convert("RGB"))
    except OSError:
        return None


def _encode_thumbnail(image: Image.Image) -> bytes:
    image.thumbnail((MAX_IMAGE_PIXELS_PER_SIDE, MAX_IMAGE_PIXELS_PER_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def encode_wav(clip: np.ndarray, sample_rate: int) -> bytes:
    """Encode one channel of int16 as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(np.ascontiguousarray(clip, dtype="<i2").tobytes())
    return file.getvalue()
