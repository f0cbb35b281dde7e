"""Encoders through torch.compile: norms, activations and sums between convolutions become one pass over memory."""

from __future__ import annotations

from torch import nn

from nearfar.encoders import ConvNet, ResNet


def compile_encoders(net: nn.Module) -> None:
    """Compile every convolutional encoder of the net, followers included, in place: names and weights stay as they are.

    Encoders and not the recipe's `embed`: they are the time, and one compiled encoder serves all recipes and seeds of a machine.
    """
    for module in net.modules():
        if isinstance(module, (ResNet, ConvNet)):
            module.compile(dynamic=False)
