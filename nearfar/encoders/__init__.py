"""Encoders: from a sample to its representation. `make_encoder("resnet18", sizes)` knows them by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from nearfar.core import Sizes, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.encoders.audio import AUDIO_ENCODERS, FrameEncoder, make_audio_encoder, pooled
from nearfar.encoders.convnet import Block, Bottleneck, ConvNet, ResNet, batch_norm, group_norm
from nearfar.encoders.frames import FRAME_ENCODERS, make_frame_encoder, resolve_frame_encoder
from nearfar.encoders.graph import GCN, GIN, GRAPH_ENCODERS, make_graph_encoder
from nearfar.encoders.pretrained import HuggingFaceImage, remembered
from nearfar.encoders.standardise import Standardise
from nearfar.encoders.text import TEXT_ENCODERS, Pool, TextEncoder, make_text_encoder

_RESNETS = {"resnet18": ((2, 2, 2, 2), Block), "resnet34": ((3, 4, 6, 3), Block), "resnet50": ((3, 4, 6, 3), Bottleneck)}
IMAGE_ENCODERS = ("convnet", "convnet-gn", *(f"{r}{s}" for r in _RESNETS for s in ("", "-gn", "-imagenet", "-imagenet-gn")))


def make_encoder(spec: str, sizes: Sizes, weights: bool = True) -> nn.Module:
    """The encoder a spec names, with a `dim`; its weights are drawn from torch's generators (seed them around the call).

    `weights=False`: the caller fills them in, and the files of a pre-trained model are not read.
    """
    if "vocabulary" in sizes:
        return make_text_encoder(spec, sizes, weights)
    if "rate" in sizes:
        return make_audio_encoder(spec, sizes, weights)
    if "node_features" in sizes:
        return make_graph_encoder(spec, sizes)
    if "height" in sizes:
        return make_frame_encoder(spec, sizes)
    body, standard = _body(spec, sizes, weights), sizes.get("standardised", sizes)
    encoder = nn.Sequential(Standardise(standard["mean"], standard["std"]), body)
    encoder.dim, encoder.space = body.dim, getattr(body, "space", None)  # type: ignore[assignment]
    return encoder


def resolve_encoder(spec: str, sizes: Sizes) -> str:
    """The spec with `auto` replaced by the name it stands for."""
    if spec != "auto":
        return spec
    if "vocabulary" in sizes:
        return "bert-tiny"
    if "rate" in sizes:
        return "mel"
    if "words" in sizes:
        return "lookup"
    if "node_features" in sizes:
        return "gcn-1x512" if "nodes" in sizes else "gin-3x32"
    if "height" in sizes:
        return resolve_frame_encoder(sizes)
    return "convnet" if sizes["size"] <= 40 else "resnet18"


def _body(spec: str, sizes: Sizes, weights: bool) -> nn.Module:
    if spec.startswith("hf:"):
        return HuggingFaceImage(spec[3:], None if weights else sizes.get("architecture"))
    if spec not in IMAGE_ENCODERS:
        raise UsageError(
            f"--encoder {spec!r} is unknown: use one of {', '.join(IMAGE_ENCODERS)} or hf:NAME.{did_you_mean(spec, IMAGE_ENCODERS)}"
        )
    name, *options = spec.split("-")
    norm: Callable = group_norm if "gn" in options else batch_norm
    if name == "convnet":
        return ConvNet(sizes["channels"], sizes["size"], norm=norm)
    depths, block = _RESNETS[name]
    return ResNet(sizes["channels"], depths, block, stem="imagenet" if "imagenet" in options else "small", norm=norm)


__all__ = [
    "AUDIO_ENCODERS",
    "FRAME_ENCODERS",
    "GCN",
    "GIN",
    "GRAPH_ENCODERS",
    "IMAGE_ENCODERS",
    "TEXT_ENCODERS",
    "ConvNet",
    "FrameEncoder",
    "HuggingFaceImage",
    "Pool",
    "ResNet",
    "Standardise",
    "TextEncoder",
    "make_audio_encoder",
    "make_encoder",
    "make_graph_encoder",
    "make_text_encoder",
    "pooled",
    "remembered",
    "resolve_encoder",
]  # fmt: skip
