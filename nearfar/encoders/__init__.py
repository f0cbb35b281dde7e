"""Encoders: modules that map samples to representations.

`make_encoder("resnet18", sizes)` builds an encoder by name.

To add encoders for a new modality, write a module in this package with an `EncoderFamily`. The modules are the registry.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from torch import nn

from nearfar.core import Sizes, UsageError
from nearfar.encoders.audio import AUDIO_ENCODERS, FrameEncoder, pool_mean_std
from nearfar.encoders.convnet import ConvNet, ResNet
from nearfar.encoders.family import EncoderFamily
from nearfar.encoders.frames import FRAME_ENCODERS
from nearfar.encoders.graphs import GCN, GIN, GRAPH_ENCODERS
from nearfar.encoders.image import IMAGE_ENCODERS, HuggingFaceImage
from nearfar.encoders.pretrained import read_pretrained_config
from nearfar.encoders.standardize import Standardize
from nearfar.encoders.text import TEXT_ENCODERS, Pooling, TextEncoder


@cache
def list_encoder_families() -> tuple[EncoderFamily, ...]:
    """Return the encoder families that the modules of this package define."""
    modules = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    return tuple({id(value): value for module in modules for value in vars(module).values() if isinstance(value, EncoderFamily)}.values())


def make_encoder(spec: str, sizes: Sizes, load_weights: bool = True) -> nn.Module:
    """Build the encoder that a spec names. Its `dim` is the output width.

    Weights are drawn from torch's generators: seed them before the call.

    Args:
        spec: name of the encoder, such as "resnet18" or "hf:NAME".
        sizes: sizes of the data. They decide the encoder family.
        load_weights: False if the caller fills in the weights. A pre-trained model is then built from the
            architecture in `sizes`, and its files are not read.

    Raises:
        UsageError: if the spec is unknown, or if no family matches the sizes.
    """
    return _family(sizes).build(spec, sizes, load_weights)


def resolve_encoder(spec: str, sizes: Sizes) -> str:
    """Replace the spec `auto` by the family's default encoder name. Return other specs unchanged."""
    return _family(sizes).choose_default(sizes) if spec == "auto" else spec


def _family(sizes: Sizes) -> EncoderFamily:
    for family in list_encoder_families():
        if family.size_field in sizes:
            return family
    known = ", ".join(f"{family.size_field} ({family.modality_name})" for family in list_encoder_families())
    raise UsageError(f"no encoder supports data with the sizes {', '.join(sizes)}: one of {known} must be among them")


__all__ = [
    "AUDIO_ENCODERS",
    "FRAME_ENCODERS",
    "GCN",
    "GIN",
    "GRAPH_ENCODERS",
    "IMAGE_ENCODERS",
    "TEXT_ENCODERS",
    "ConvNet",
    "EncoderFamily",
    "FrameEncoder",
    "HuggingFaceImage",
    "Pooling",
    "ResNet",
    "Standardize",
    "TextEncoder",
    "list_encoder_families",
    "make_encoder",
    "pool_mean_std",
    "read_pretrained_config",
    "resolve_encoder",
]  # fmt: skip
