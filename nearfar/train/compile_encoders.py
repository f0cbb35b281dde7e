"""Compilation of encoders with torch.compile.

Norms, activations and sums between convolutions become one pass over memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import nn

from nearfar.encoders import ConvNet, ResNet
from nearfar.heads.split_batch_norm import SplitBatchNorm

logger = logging.getLogger("nearfar")


def compile_encoders(net: nn.Module) -> None:
    """Compile every convolutional encoder of the net in place, including momentum encoders.

    Names and weights stay as they are. Encoders are compiled instead of the recipe's `embed` because they
    take most of the time, and because one compiled encoder serves all recipes and seeds on a machine. If
    compilation fails, or there is no compiler, the log gives the reason and the encoders run without
    compilation.
    """
    encoders = [module for module in net.modules() if isinstance(module, (ResNet, ConvNet))]

    def give_up(why: Exception) -> None:
        for encoder in encoders:
            encoder._compiled_call_impl = None
        reason = str(why).strip() or type(why).__name__
        logger.warning("--compile: encoders run uncompiled, torch.compile failed: %s", reason.splitlines()[0])

    for encoder in encoders:
        encoder.compile(dynamic=False, options=_options(encoder))
        # `compile` has set this attribute. Copies of a module do not have it.
        encoder._compiled_call_impl = _unless_it_fails(encoder, give_up)


def _unless_it_fails(encoder: nn.Module, give_up: Callable[[Exception], None]) -> Callable:
    from torch._dynamo.exc import TorchDynamoException  # imported here because the import is slow

    compiled = encoder._compiled_call_impl
    assert compiled is not None

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except TorchDynamoException as e:  # raised during compilation, before anything ran
            give_up(e)
            return encoder(*args, **kwargs)

    return call


def _options(encoder: nn.Module) -> dict[str, str | int | bool | Callable]:
    """Choose the options of torch.compile.

    With a split batch norm, Inductor fails to fuse the reductions over groups with those over the batch
    (torch 2.11, on GPUs). An option turns this fusion off.
    """
    from torch._inductor import config

    split = any(isinstance(module, SplitBatchNorm) for module in encoder.modules())
    choices = {"triton.mix_order_reduction": False} if split else {}
    return {name: choice for name, choice in choices.items() if name in config.get_config_copy()}
