"""Row-wise Adagrad, for tables of which each step changes a few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from nearfar.losses.word2vec import sum_listed_rows


class RowAdagrad(Optimizer):
    r"""Adagrad with one accumulator for each row.

    \(a_i \leftarrow a_i + \tfrac1d \lVert g_i \rVert^2\), \(w_i \leftarrow w_i - \eta\, g_i / \sqrt{a_i}\).

    The cost of a step with sparse gradients grows with the number of their rows. Rows without a gradient stay
    as they are. Weight decay would therefore act differently on rare and on frequent rows, so there is none.
    A frequent word, whose gradients in a batch add up, is moved by small steps and a rare word by large
    steps. The scale of the loss does not matter.

    Reference: Duchi, Hazan & Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", JMLR 2011.
    """

    def __init__(self, params: Iterable, lr: float, eps: float = 1e-10):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all rows that have a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group)

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["sum"] = p.new_zeros(len(p) if p.ndim else 1)
        ids, g = get_touched_rows(p.grad)  # type: ignore[arg-type]
        squares = state["sum"].index_add_(0, ids, torch.linalg.vector_norm(g, dim=1).square_().div_(g.shape[1])).index_select(0, ids)
        step = g / (squares.sqrt() + group["eps"])[:, None]
        if p.grad.is_sparse:  # type: ignore[union-attr]
            change = torch.sparse_coo_tensor(ids[None], step, p.shape, is_coalesced=True, check_invariants=False)
        else:
            change = step.view(p.shape)
        p.add_(change, alpha=-group["lr"])


def get_touched_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that have a gradient, each once, and their gradients.

    The cost depends on the number of these rows, not on the length of the table.

    Args:
        grad: sparse or dense gradient of a table.

    Returns:
        The row numbers (rows,) and their gradients (rows, width).
    """
    if grad.is_sparse:
        ids, values = grad._indices()[0], grad._values()
        if (ids[1:] > ids[:-1]).all():  # each row occurs once
            return ids, values
        ids, order = ids.sort(stable=True)
        rows, counts = ids.unique_consecutive(return_counts=True)
        return rows, sum_listed_rows(values, (order, F.pad(counts.cumsum(0), (1, 0))))
    flat = grad.reshape(len(grad) if grad.ndim else 1, -1)
    return torch.arange(len(flat), device=grad.device), flat


def densify(params: Iterable[Tensor]) -> None:
    """Convert sparse gradients to dense ones, for code that takes only dense gradients."""
    for p in params:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.to_dense()
