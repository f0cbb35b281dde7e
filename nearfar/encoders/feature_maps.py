"""Feature maps of images: local features from the stages of a convolutional encoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import UsageError
from nearfar.encoders.convnet import ConvNet, ResNet


def get_map_channels(encoder: nn.Module) -> tuple[int, ...]:
    """Return the number of channels of each map, finest first."""
    return _body(encoder).map_channels


def encode_with_maps(encoder: nn.Module, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n d"], list[Float[Tensor, "n _ _"]]]:
    """Return the representation and the feature map of each stage.

    Each map has the shape (n, positions, channels). The finest map comes first.
    """
    body = _body(encoder)
    maps = body.extract_feature_maps(encoder[0](x))  # type: ignore[index]
    return maps[-1].mean((2, 3)), [found.flatten(2).transpose(1, 2) for found in maps]


def _body(encoder: nn.Module) -> ConvNet | ResNet:
    """Return the encoder without the layer that standardizes."""
    body = encoder[1] if isinstance(encoder, nn.Sequential) and len(encoder) == 2 else None
    if not isinstance(body, ConvNet | ResNet):
        raise UsageError("this method needs feature maps, and this encoder has none: use --encoder convnet or resnet18")
    return body
