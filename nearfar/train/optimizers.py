"""Optimizers: SGD, AdamW, LARS and row-wise Adagrad.

Weights decay. Parameters with one dimension do not, unless the settings say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nearfar.core import Net, TrainConfig, UsageError
from nearfar.train.row_adagrad import RowAdagrad, densify


class LARS(Optimizer):
    r"""Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017), as in SimCLR and BYOL.

    \(v \leftarrow \mu v + \eta\, r\, (g + \lambda w)\), \(w \leftarrow w - v\), with the trust ratio \(r =
    \kappa \lVert w \rVert / \lVert g + \lambda w \rVert\) where both norms are positive, else 1. Groups with
    `adapt=False` (biases, norms) take plain momentum steps.
    """

    def __init__(self, params: Iterable, lr: float, momentum: float = 0.9, weight_decay: float = 0.0, trust_coefficient: float = 1e-3):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust_coefficient, "adapt": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group)

    def _move(self, p: torch.Tensor, group: dict[str, Any]) -> None:
        g = p.grad.add(p, alpha=group["weight_decay"])  # type: ignore[union-attr]
        if group["adapt"]:
            w_norm, g_norm = p.norm(), g.norm()
            ratio = torch.where((w_norm > 0) & (g_norm > 0), group["trust"] * w_norm / g_norm, torch.ones_like(w_norm))
            g = g * ratio
        velocity = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
        velocity.mul_(group["momentum"]).add_(g, alpha=group["lr"])
        p.sub_(velocity)


def select_parameters(net: Net, prefixes: tuple[str, ...]) -> list[tuple[str, nn.Parameter]]:
    """Return the trainable parameters whose names begin with one of the prefixes.

    Each parameter occurs once, in the order of the net.
    """
    return [(name, p) for name, p in net.named_parameters() if p.requires_grad and name.startswith(prefixes)]


def make_optimizer(net: Net, prefixes: tuple[str, ...], config: TrainConfig) -> Optimizer:
    """Build the run's optimizer for the parameters of a recipe.

    Row-wise Adagrad receives the sparse gradients of tables. For all other optimizers they are made dense.

    Args:
        net: net of the recipe.
        prefixes: beginnings of the names of the parameters to train.
        config: settings of the training.

    Raises:
        UsageError: if gradient clipping is combined with Adagrad.
    """
    if config.optimizer == "adagrad":
        if config.grad_clip:
            raise UsageError("--grad-clip has no meaning with --optimizer adagrad, whose steps do not depend on the gradient's scale")
        return RowAdagrad([p for _, p in select_parameters(net, prefixes)], lr=config.lr)
    optimizer = _dense_optimizer(net, prefixes, config)
    optimizer.register_step_pre_hook(lambda *_: densify(p for group in optimizer.param_groups for p in group["params"]))
    return optimizer


def _dense_optimizer(net: Net, prefixes: tuple[str, ...], config: TrainConfig) -> Optimizer:
    """Build an optimizer with two groups of parameters.

    Matrices decay. Vectors and scalars decay only if `decay_params` is "all".
    """
    params = [p for _, p in select_parameters(net, prefixes)]
    matrices = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": config.weight_decay if config.decay_params == "all" else 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    fused = all(p.is_cuda for p in params) or None  # one launch instead of dozens
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, fused=fused)
    if config.optimizer == "sgd":
        sgd = torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=fused)
        if fused:
            initialize_momentum(sgd)
        return sgd
    for g in groups:
        g["adapt"] = g["params"][0].ndim > 1
    return LARS(groups, lr=config.lr, momentum=config.momentum)


def initialize_momentum(optimizer: Optimizer) -> None:
    """Set the momentum of every parameter to zero.

    Torch's fused SGD fails if some parameters of a step have a momentum and others have none. This happens if
    a parameter receives its first gradient in a later step.
    """
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def reset_optimizer_state(optimizer: Optimizer, net: Net, prefixes: tuple[str, ...]) -> None:
    """Set the optimizer's state to zero for parameters that a refresh has re-initialized.

    Args:
        optimizer: the optimizer.
        net: the net.
        prefixes: beginnings of the names of these parameters.
    """
    for _, p in select_parameters(net, prefixes) if prefixes else ():
        for value in optimizer.state.get(p, {}).values():
            value.zero_()
