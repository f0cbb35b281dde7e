"""Encoders through torch.compile: norms, activations and sums between convolutions become one pass over memory."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from nearfar.encoders import ConvNet, ResNet
from nearfar.heads.batchnorm import SplitBatchNorm


def compile_encoders(net: nn.Module) -> None:
    """Compile every convolutional encoder of the net, followers included, in place: names and weights stay as they are.

    Encoders and not the recipe's `embed`: they are the time, and one compiled encoder serves all recipes and seeds of a machine.
    """
    for module in net.modules():
        if isinstance(module, (ResNet, ConvNet)):
            module.compile(dynamic=False, options=_options(module))


def _options(module: nn.Module) -> dict[str, str | int | bool | Callable]:
    """Inductor fails to fuse a split norm's reductions over groups with those over the batch (torch 2.11, on GPUs): let it not try."""
    from torch._inductor import config  # only who compiles waits for it

    choices = {"triton.mix_order_reduction": False} if any(isinstance(m, SplitBatchNorm) for m in module.modules()) else {}
    return {name: choice for name, choice in choices.items() if name in config.get_config_copy()}
