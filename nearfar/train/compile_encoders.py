"""Encoders through torch.compile: norms, activations and sums between convolutions become one pass over memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import nn

from nearfar.encoders import ConvNet, ResNet
from nearfar.heads.split_batch_norm import SplitBatchNorm

logger = logging.getLogger("nearfar")


def compile_encoders(net: nn.Module) -> None:
    """Compile every convolutional encoder of the net, followers included, in place: names and weights stay as they are.

    Encoders and not the recipe's `embed`: they are the time, and one compiled encoder serves all recipes and seeds of a machine. Where
    they cannot be compiled (no compiler, one that fails), the log says why, and they run as they are.
    """
    encoders = [module for module in net.modules() if isinstance(module, (ResNet, ConvNet))]

    def give_up(why: Exception) -> None:
        for encoder in encoders:
            encoder._compiled_call_impl = None
        reason = str(why).strip() or type(why).__name__
        logger.warning("--compile: encoders run as they are, torch.compile failed: %s", reason.splitlines()[0])

    for encoder in encoders:
        encoder.compile(dynamic=False, options=_options(encoder))
        encoder._compiled_call_impl = _unless_it_fails(encoder, give_up)  # where `compile` left it; copies of a module go without


def _unless_it_fails(encoder: nn.Module, give_up: Callable[[Exception], None]) -> Callable:
    from torch._dynamo.exc import TorchDynamoException  # only who compiles waits for it

    compiled = encoder._compiled_call_impl
    assert compiled is not None

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except TorchDynamoException as e:  # while it was compiled: nothing has run yet
            give_up(e)
            return encoder(*args, **kwargs)

    return call


def _options(encoder: nn.Module) -> dict[str, str | int | bool | Callable]:
    """Inductor fails to fuse a split norm's reductions over groups with those over the batch (torch 2.11, on GPUs): let it not try."""
    from torch._inductor import config

    split = any(isinstance(module, SplitBatchNorm) for module in encoder.modules())
    choices = {"triton.mix_order_reduction": False} if split else {}
    return {name: choice for name, choice in choices.items() if name in config.get_config_copy()}
