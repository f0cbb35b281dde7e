"""Encoders: from a sample to its representation. `make_encoder("resnet18", sizes)` knows them by name.

Encoders for a new kind of data are one more row of `FAMILIES` and a file beside this one.
"""

from __future__ import annotations

from torch import nn

from nearfar.core import Sizes, UsageError
from nearfar.encoders.audio import AUDIO_ENCODERS, SOUNDS, FrameEncoder, pooled
from nearfar.encoders.convnet import ConvNet, ResNet
from nearfar.encoders.family import Family
from nearfar.encoders.frames import FRAME_ENCODERS, FRAMES
from nearfar.encoders.graph import GCN, GIN, GRAPH_ENCODERS, GRAPHS
from nearfar.encoders.image import IMAGE_ENCODERS, IMAGES, HuggingFaceImage
from nearfar.encoders.lookup import WORDS
from nearfar.encoders.pretrained import remembered
from nearfar.encoders.standardize import Standardise
from nearfar.encoders.text import TEXT_ENCODERS, TEXTS, Pool, TextEncoder

FAMILIES = [FRAMES, GRAPHS, IMAGES, SOUNDS, TEXTS, WORDS]
"""For each kind of data its encoders."""


def make_encoder(spec: str, sizes: Sizes, weights: bool = True) -> nn.Module:
    """The encoder a spec names, with a `dim`; its weights are drawn from torch's generators (seed them around the call).

    `weights=False`: the caller fills them in. A pre-trained model is then built from the architecture that `sizes` holds, and its
    files are not read.
    """
    return _family(sizes).make(spec, sizes, weights)


def resolve_encoder(spec: str, sizes: Sizes) -> str:
    """The spec with `auto` replaced by the name it stands for."""
    return _family(sizes).auto(sizes) if spec == "auto" else spec


def _family(sizes: Sizes) -> Family:
    for family in FAMILIES:
        if family.mark in sizes:
            return family
    known = ", ".join(f"{family.mark} ({family.of})" for family in FAMILIES)
    raise UsageError(f"no encoder is known for data of which the sizes are {', '.join(sizes)}: one of {known} must be among them")


__all__ = [
    "AUDIO_ENCODERS",
    "FAMILIES",
    "FRAME_ENCODERS",
    "GCN",
    "GIN",
    "GRAPH_ENCODERS",
    "IMAGE_ENCODERS",
    "TEXT_ENCODERS",
    "ConvNet",
    "Family",
    "FrameEncoder",
    "HuggingFaceImage",
    "Pool",
    "ResNet",
    "Standardise",
    "TextEncoder",
    "make_encoder",
    "pooled",
    "remembered",
    "resolve_encoder",
]  # fmt: skip
