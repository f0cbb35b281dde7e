"""Row-wise Adagrad: for tables of which a step touches a few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class RowAdagrad(Optimizer):
    r"""Adagrad with one accumulator a row: \(a_i \leftarrow a_i + \tfrac1d \lVert g_i \rVert^2\),
    \(w_i \leftarrow w_i - \eta\, g_i / \sqrt{a_i}\).

    Sparse gradients cost what their rows cost, and rows that a step does not touch stay as they are, so that weight decay would
    mean something else for rare rows than for frequent ones: there is none. A frequent word, whose gradients of a batch add up, is
    moved by small steps and a rare one by large ones; the scale of the loss does not matter.

    Reference: Duchi, Hazan & Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", JMLR 2011.
    """

    def __init__(self, params: Iterable, lr: float, eps: float = 1e-10):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group)

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["sum"] = p.new_zeros(len(p) if p.ndim else 1)
        ids, g = touched(p.grad)  # type: ignore[arg-type]
        sums = state["sum"].index_add_(0, ids, g.square().mean(1)).index_select(0, ids)
        p.view(len(state["sum"]), -1).index_add_(0, ids, g / (sums.sqrt() + group["eps"])[:, None], alpha=-group["lr"])


def touched(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that have a gradient, each once, and their gradients as `(rows, width)`."""
    if grad.is_sparse:
        ids, values = grad._indices()[0], grad._values()
        mark = torch.zeros(len(grad), dtype=torch.int32, device=grad.device).index_fill_(0, ids, 1)
        rows = mark.nonzero()[:, 0]  # marking is faster than sorting, as long as the table has not many times more rows than are touched
        return rows, values.new_zeros(len(rows), values.shape[1]).index_add_(0, (mark.cumsum(0) - 1).index_select(0, ids), values)
    flat = grad.reshape(len(grad) if grad.ndim else 1, -1)
    return torch.arange(len(flat), device=grad.device), flat


def densify(params: Iterable[Tensor]) -> None:
    """For who knows only dense gradients."""
    for p in params:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.to_dense()
