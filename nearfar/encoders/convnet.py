"""Image encoders: a plain ConvNet, and ResNets with a stem for small or large images."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

NormLayer = Callable[[int], nn.Module]


def make_batch_norm(channels: int) -> nn.Module:
    """Build a batch norm."""
    return nn.BatchNorm2d(channels)


def make_group_norm(channels: int) -> nn.Module:
    """Build a group norm with at most 8 groups.

    Its statistics come from one sample alone. Training is therefore exact when a batch is split into chunks
    or over ranks.
    """
    return nn.GroupNorm(min(8, channels), channels)


def make_conv(in_channels: int, out_channels: int, kernel_size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Build a convolution without bias, padded to keep the image size at stride 1."""
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, bias=False)


class ConvNet(nn.Sequential):
    """Stages of convolution, norm and ReLU for images of 8 to 40 pixels on a CPU.

    The stages halve the image until a side has 4 pixels or fewer. They widen the channels up to 4 times.
    `dim` is the width of the averaged last stage.
    """

    def __init__(self, channels: int, image_size: int, width: int = 32, norm: NormLayer = make_batch_norm):
        stages, side = 1, image_size
        while side > 4:
            stages, side = stages + 1, side // 2
        layers: list[nn.Module] = []
        inward = channels
        for stage in range(stages):
            outward = width * 2 ** min(stage, 2)
            layers += [make_conv(inward, outward, stride=1 if stage == 0 else 2), norm(outward), nn.ReLU(inplace=True)]
            inward = outward
        layers += [make_conv(inward, inward * 2), norm(inward * 2), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers)
        self.dim = inward * 2
        self.map_channels = tuple(layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:  # type: ignore[override]
        # torch.compile skips torch's own modules, such as a plain Sequential. This override is compiled.
        return super().forward(x)

    def extract_feature_maps(self, x: Float[Tensor, "n c h w"]) -> list[Tensor]:
        """Return the feature map of each stage, finest first.

        The mean over the positions of the last map is the output of `forward`.
        """
        found = []
        for layer in list(self)[:-2]:
            x = layer(x)
            found += [x] if isinstance(layer, nn.ReLU) else []
        return found


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (ResNet-18, -34)."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, norm: NormLayer):
        super().__init__()
        self.body = nn.Sequential(
            make_conv(in_channels, width, 3, stride), norm(width), nn.ReLU(inplace=True), make_conv(width, width), norm(width)
        )  # fmt: skip
        self.short = _shortcut(in_channels, width, stride, norm)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.short(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut (ResNet-50). The 3x3 convolution has the stride."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, norm: NormLayer):
        super().__init__()
        self.body = nn.Sequential(
            make_conv(in_channels, width, 1), norm(width), nn.ReLU(inplace=True),
            make_conv(width, width, 3, stride), norm(width), nn.ReLU(inplace=True),
            make_conv(width, 4 * width, 1), norm(4 * width),
        )  # fmt: skip
        self.short = _shortcut(in_channels, 4 * width, stride, norm)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.short(x))


def _shortcut(in_channels: int, out_channels: int, stride: int, norm: NormLayer) -> nn.Module:
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(make_conv(in_channels, out_channels, 1, stride), norm(out_channels))


class ResNet(nn.Module):
    """ResNet of He et al. 2016 without the classifier.

    `dim` is 512 (ResNet-18, -34) or 2048 (ResNet-50).

    Args:
        channels: number of image channels.
        blocks_per_stage: number of blocks in each stage.
        block: type of the blocks.
        stem: "small" is one 3x3 convolution without pooling, as is usual on CIFAR. "imagenet" is a 7x7
            convolution with stride 2 and a max pool.
        norm: function that builds a norm layer for a number of channels.
    """

    def __init__(
        self,
        channels: int,
        blocks_per_stage: tuple[int, ...],
        block: type[BasicBlock] | type[Bottleneck],
        stem: str = "small",
        norm: NormLayer = make_batch_norm,
    ):
        super().__init__()
        if stem == "small":
            self.stem = nn.Sequential(make_conv(channels, 64), norm(64), nn.ReLU(inplace=True))
        else:
            self.stem = nn.Sequential(make_conv(channels, 64, 7, 2), norm(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        inward = 64
        for stage, depth in enumerate(blocks_per_stage):
            for i in range(depth):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(block(inward, 64 * 2**stage, stride, norm))
                inward = 64 * 2**stage * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.dim = inward
        self.blocks_per_stage, self.map_channels = (
            blocks_per_stage,
            tuple(64 * 2**stage * block.expansion for stage in range(len(blocks_per_stage))),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return self.blocks(self.stem(x)).mean((2, 3))

    def extract_feature_maps(self, x: Float[Tensor, "n c h w"]) -> list[Tensor]:
        """Return the feature map of each stage, finest first.

        The mean over the positions of the last map is the output of `forward`.
        """
        found, ends = [], set(itertools.accumulate(self.blocks_per_stage))
        x = self.stem(x)
        for count, block in enumerate(self.blocks, start=1):
            x = block(x)
            found += [x] if count in ends else []
        return found
