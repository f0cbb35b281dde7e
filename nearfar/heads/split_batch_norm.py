r"""Batch normalization by groups of the batch.

Each group has its own statistics, as if it were on its own device.

$$y_i = \gamma\,\frac{x_i - \mu_{g(i)}}{\sqrt{\sigma_{g(i)}^2 + \epsilon}} + \beta,
\qquad g(i) = \lfloor i\,G/n \rfloor$$

Why: batch statistics leak information about the other rows of a batch. A method may compare two passes over
the same images, with negatives from other passes. It could then find the pairs from the shared statistics
alone. If the groups differ between the passes, it cannot.

Shapes: x (n, c, ...) with n a multiple of G. The running statistics move by the mean over the groups.
Evaluation is the same as in any BatchNorm.

Reference: shuffled batch norm in He et al., "Momentum Contrast", section 3.3, arXiv:1911.05722.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.core.errors import UsageError

BATCH_NORM_TYPES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class BatchNormBase(_BatchNorm):
    """BatchNorm with any number of axes that computes its own statistics."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 axes (rows, channels, …), got shape {tuple(input.shape)}")

    @torch.no_grad()
    def update_running_stats(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics in the same way as torch.

        The variance is the unbiased one. With momentum None, the statistics are the plain average of all
        steps.
        """
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class SplitBatchNorm(BatchNormBase):
    """BatchNorm1d, 2d or 3d with separate statistics by group.

    In training, each of `num_groups` parts of the batch has its own statistics. The parts are
    equal in size and follow the order of the batch.
    """

    num_groups: int

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        n, odd = divmod(len(input), self.num_groups)
        if odd or input[0, 0].numel() * n < 2:
            problem = f"{len(input)} images cannot be divided into {self.num_groups} equal groups with separate statistics"
            raise UsageError(f"{problem}: change the batch or the groups")
        x = (input if input.dtype == torch.float64 else input.float()).unflatten(0, (self.num_groups, n))
        axes = [axis for axis in range(x.dim()) if axis not in (0, 2)]
        variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        count = x[0, :, 0].numel()
        self.update_running_stats(mean.mean(0).flatten(), variance.mean(0).flatten() * (count / (count - 1)))
        y = (x - mean) * (variance + self.eps).rsqrt()
        if self.affine:
            channels = (-1, *[1] * (x.dim() - 3))
            y = y * self.weight.view(channels) + self.bias.view(channels)
        return y.flatten(0, 1).to(input.dtype)


def split_batch_norm(module: nn.Module, num_groups: int) -> None:
    """Make every BatchNorm in a module normalize by groups.

    Parameters, buffers and their names stay as they are.
    """
    for part in module.modules():
        if type(part) in BATCH_NORM_TYPES:
            part.__class__ = SplitBatchNorm  # keeps the object that parents and hooks refer to
            cast(SplitBatchNorm, part).num_groups = num_groups
