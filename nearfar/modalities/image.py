"""Image modality.

Raw pixels are the baseline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, Rows, UsageError
from nearfar.core.modality import Modality, SampleMedia, ViewPair
from nearfar.data import Images, Tokenizer
from nearfar.data.images.decode import IMAGE_EXTENSIONS
from nearfar.data.images.inputs import ImageInputs
from nearfar.evaluate import Features, build_pixel_baselines
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.modalities.media import encode_image_file_png, encode_png
from nearfar.similarity import choose_views, simclr_views
from nearfar.train.model import Model

MAX_RAW_PIXELS_PER_SIDE = 32
"""Largest side of raw-pixel baselines. Larger images are averaged down, because a probe on more pixels
takes longer than the training."""
DUPLICATE_PIXELS_PER_SIDE = 16
"""Side of the small images whose pixels reveal near copies."""
PIXEL_DIFFERENCE_NOTE = " · right: pixel difference"


class ImageModality(Modality):
    """Images."""

    name = "image"
    plural = "images"
    reveals_copies = True
    settings = ("image_size",)
    data_help = "Images: 'digits', a folder of images, CIFAR-10 or MNIST files, or a .npy or .npz file of uint8 images."
    encoder_help = (
        "Images: convnet, resnet18, resnet34, resnet50, also with group norm (convnet-gn, …) or with ImageNet's stem "
        "(resnet18-imagenet, …), or hf:NAME-OR-FOLDER, a transformers model. auto: convnet up to 40 pixels, resnet18 above."
    )
    candidates = ("simclr", "moco-v2", "byol", "barlow-twins", "w-mse")
    bundled = ("digits",)
    extensions = (*IMAGE_EXTENSIONS, "-ubyte", "-ubyte.gz", ".bin", ".npz")
    media = SampleMedia(picture=True, difference=PIXEL_DIFFERENCE_NOTE)
    input_types = ("images",)
    pipeline_tag = "image-feature-extraction"
    code_example = "images"
    rowwise_encoder = "convnet-gn"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> ImageInputs:
        return ImageInputs(sizes)

    def recognizes(self, data: Any) -> bool:
        """Return True also for data in memory: arrays, tensors and datasets are images."""
        if not isinstance(data, (str, os.PathLike)):
            return True
        return _count_axes(data) >= 3 if str(data).endswith(".npy") else super().recognizes(data)

    def compute_baselines(self, train: Images, test: Images, views: ViewPair | None) -> dict[str, Features]:
        return build_pixel_baselines(
            read_raw_pixels(train), read_raw_pixels(test), None if views is None else (_downscale(views[0]), _downscale(views[1]))
        )

    def summarize_data(self, train: Images) -> str:
        return f"{len(train):,} training images of {train.shape[2]} x {train.shape[1]} pixels"

    def build_sample_renderer(self, data: Images) -> Callable[[Tensor], Tensor]:
        return lambda ids: _read_unit_pixels(data, ids.reshape(-1).numpy()).unflatten(0, ids.shape)

    def encode_ranking_views(self, model: Model, samples: Images, rng_key: RandomKey) -> ViewPair:
        """Encode SimCLR's views for every method."""
        views, ids = choose_views(model.net.sizes, simclr_views), np.arange(len(samples))
        rows = Rows(ids, ids, ids)
        drawn = views.view(views.read(samples, rows, rng_key("read")), rows, rng_key("views"))
        return self.encode_views(model, (drawn["v0"], drawn["v1"]))

    def read_raw_features(self, model: Model, data: Images, ids: np.ndarray) -> Tensor:
        return read_duplicate_features(data, ids)

    def parse_query(self, model: Model, query: str) -> Any:
        raise UsageError(f"there is no file {query!r}: this index is searched with an image, with row:N, or with vectors (-)")

    def encode_sample_png(self, part: Images, i: int) -> bytes:
        return encode_png(part.read(np.array([i]))[0].cpu().numpy())

    def encode_file_png(self, path: str) -> bytes | None:
        return encode_image_file_png(path)

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        return {"model": build_image_signature(model.net.sizes)}


def flatten_pixels(images: Tensor) -> Tensor:
    """Return uint8 images as rows of floats, averaged down if they are large, (n, f)."""
    return _downscale(images.float() / 255).flatten(1)


def read_raw_pixels(data: Images) -> Tensor:
    """Return all images as floats, averaged down if they are large.

    Images are read in parts, so memory never holds all of them at full size.
    """
    return torch.cat([_downscale(_read_unit_pixels(data, np.arange(i, min(i + 512, len(data))))) for i in range(0, len(data), 512)])


def _downscale(images: Tensor) -> Tensor:
    large = images.shape[-1] > MAX_RAW_PIXELS_PER_SIDE
    return torch.nn.functional.adaptive_avg_pool2d(images, MAX_RAW_PIXELS_PER_SIDE) if large else images


def _read_unit_pixels(data: Images, ids: np.ndarray) -> Tensor:
    return data.read(ids).float() / 255


def read_duplicate_features(data: Any, ids: np.ndarray) -> Tensor:
    """Return the pixels of small copies of some images or frames, (n, f)."""
    images = data.read(ids).cpu().float() / 255
    large = images.shape[-1] > DUPLICATE_PIXELS_PER_SIDE
    return (torch.nn.functional.adaptive_avg_pool2d(images, DUPLICATE_PIXELS_PER_SIDE) if large else images).flatten(1)


def _count_axes(path: str | os.PathLike) -> int:
    """Return the number of axes of a .npy file, 0 if it cannot be read."""
    try:
        return np.load(os.path.expanduser(path), mmap_mode="r", allow_pickle=False).ndim
    except (OSError, ValueError):
        return 0


def build_image_signature(sizes: Any) -> EncoderSignature:
    """Return the signature of an image encoder."""
    channels, size, standard = sizes["channels"], sizes["size"], sizes.get("standardised", sizes)
    words = {
        "input": "images",
        "dtype": "uint8",
        "shape": ["n", channels, size, size],
        "channels": "red, green, blue" if channels == 3 else "grey",
        "values": "0 to 255, as in the file",
        "resize": f"the central square, scaled to {size} x {size} pixels with antialiasing",
        "standardise": {"done_by": "the model", "mean": list(standard["mean"]), "std": list(standard["std"]), "of_values_in": [0, 1]},
    }
    pixels = torch.arange(3 * channels * size * size) * 37 % 256
    return EncoderSignature("images", pixels.to(torch.uint8).view(3, channels, size, size), {0: "n"}, None, words)
