"""Linear probe that trains together with the encoder, for monitoring and not for reporting."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.scores.candidate_roles import as_ids


class OnlineProbe(nn.Module):
    """Linear layer on detached, batch-standardized features, trained by plain SGD.

    Its state is its state_dict. It starts at zero, so it draws no random numbers. No gradient reaches the
    encoder.
    """

    def __init__(self, dim: int, num_classes: int, lr: float = 0.1):
        super().__init__()
        self.lr = lr
        self.norm = nn.BatchNorm1d(dim, affine=False)
        self.linear = nn.Linear(dim, num_classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute class scores of detached features."""
        return self.linear(self.norm(x.detach().float()))

    def learn(self, x: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> dict[str, Tensor]:
        """Take one SGD step on a batch. Returns loss and accuracy before the step."""
        check_rows(x=x)
        y = as_ids(y, len(x), "`y`")
        self.train()
        with torch.enable_grad():
            scores = self(x)
            loss = F.cross_entropy(scores, y)
            gradients = torch.autograd.grad(loss, list(self.linear.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(self.linear.parameters(), gradients, strict=True):
                parameter -= self.lr * gradient
        accuracy = (scores.argmax(1) == y).float().mean()
        return {"probe_loss": loss.detach(), "probe_accuracy": accuracy.masked_fill(loss.isnan(), torch.nan)}
