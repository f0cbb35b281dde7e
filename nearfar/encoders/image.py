"""Image encoders: ConvNets, ResNets and image models of transformers, after a layer that standardizes.

    convnet                            small, for images up to about 40 pixels
    resnet18, resnet34, resnet50       He et al. 2016, with a stem for small images
    …-imagenet                         with the stem for large images
    …-gn                               group norm instead of batch norm
    hf:NAME-OR-FOLDER                  any image model of transformers, or the image tower of a CLIP,
                                       with its weights

The encoders take bytes or floats and return one vector for each image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import Sizes, UsageError
from nearfar.encoders.convnet import BasicBlock, Bottleneck, ConvNet, ResNet, make_batch_norm, make_group_norm
from nearfar.encoders.family import Architecture, EncoderBuilder, EncoderFamily
from nearfar.encoders.pretrained import is_dual_encoder, load_transformers_model, read_temperature
from nearfar.encoders.standardize import Standardize

_RESNETS = {"resnet18": ((2, 2, 2, 2), BasicBlock), "resnet34": ((3, 4, 6, 3), BasicBlock), "resnet50": ((3, 4, 6, 3), Bottleneck)}
CONVNET_MAX_SIDE_PIXELS = 40
"""Maximum side length in pixels of images that count as small."""


class HuggingFaceImage(nn.Module):
    """Image backbone of transformers.

    The output is the model's pooled output, or the mean of its last hidden states. For CLIP it is the
    projected output of the image tower. `dim` is the width of the output. Gray images are repeated
    in each channel for a model of color images.
    """

    def __init__(self, name: str, architecture: Architecture | None = None):
        super().__init__()
        self.name = name
        model = load_transformers_model(name, architecture)
        self.shared_space, self.temperature, self.projection = None, None, None
        if is_dual_encoder(model):
            self.shared_space, self.temperature, self.projection = name, read_temperature(model), model.visual_projection
            model = model.vision_model
        self.model, self.dim = model, _width(model) if self.projection is None else self.projection.out_features
        self.channels = int(getattr(model.config, "num_channels", 3))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        if x.shape[1] == 1:
            x = x.expand(-1, self.channels, -1, -1)
        if x.shape[1] != self.channels:
            raise UsageError(
                f"--encoder hf:{self.name} takes images of {self.channels} channel(s), these images have {x.shape[1]}: use another model"
            )
        try:
            out = self.model(pixel_values=x)
        except ValueError as e:  # transformers raises it for image sizes that the model does not take
            raise UsageError(f"--encoder hf:{self.name}: {str(e).splitlines()[0]} (--image-size scales them)") from e
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            pooled = out.last_hidden_state.mean(1)
        return pooled.flatten(1) if self.projection is None else self.projection(pooled)


def _width(model: Any) -> int:
    sizes = getattr(model.config, "hidden_sizes", None)
    return int(sizes[-1] if sizes else model.config.hidden_size)


def _convolutional(spec: str, sizes: Sizes) -> nn.Module:
    name, *options = spec.split("-")
    norm: Callable = make_group_norm if "gn" in options else make_batch_norm
    if name == "convnet":
        return _standardising(ConvNet(sizes["channels"], sizes["size"], norm=norm), sizes)
    depths, block = _RESNETS[name]
    return _standardising(ResNet(sizes["channels"], depths, block, stem="imagenet" if "imagenet" in options else "small", norm=norm), sizes)


def _pretrained(name: str, sizes: Sizes, architecture: Architecture | None) -> nn.Module:
    return _standardising(HuggingFaceImage(name, architecture), sizes)


def _standardising(body: ConvNet | ResNet | HuggingFaceImage, sizes: Sizes) -> nn.Module:
    """Put a standardizing layer before an encoder.

    Mean and deviation are those of the model's training, if its files hold them, and otherwise those of the
    data.
    """
    standard = sizes.get("standardised", sizes)
    encoder = nn.Sequential(Standardize(standard["mean"], standard["std"]), body)
    encoder.dim, encoder.shared_space = body.dim, getattr(body, "shared_space", None)  # type: ignore[assignment]
    return encoder


_NAMES = ("convnet", "convnet-gn", *(f"{name}{option}" for name in _RESNETS for option in ("", "-gn", "-imagenet", "-imagenet-gn")))
IMAGE_ENCODERS: dict[str, EncoderBuilder] = {name: partial(_convolutional, name) for name in _NAMES}
IMAGE_FAMILY = EncoderFamily(
    modality_name="images",
    size_field="size",
    builders=IMAGE_ENCODERS,
    choose_default=lambda sizes: "convnet" if sizes["size"] <= CONVNET_MAX_SIDE_PIXELS else "resnet18",
    build_pretrained=_pretrained,
)
