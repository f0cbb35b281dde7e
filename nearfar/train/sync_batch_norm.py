r"""Batch normalization over the rows of all ranks.

$$y = \gamma \hat x + \beta, \quad \hat x = (x - \mu) / \sqrt{\sigma^2 + \epsilon}, \qquad
\mu = \tfrac{1}{N} \sum_r n_r \mu_r, \quad N \sigma^2 = \sum_r \big( M_r + n_r (\mu_r - \mu)^2 \big)$$

Rank r has \(n_r\) values of a channel with mean \(\mu_r\) and sum of squared deviations \(M_r\) (Chan, Golub
& LeVeque 1979: no difference of large numbers). With g = dL/dy and sums over the values of all ranks,

$$\frac{\partial L}{\partial x} = \frac{\gamma}{\sqrt{\sigma^2 + \epsilon}}
\Big( g - \tfrac{1}{N} \sum g - \hat x \tfrac{1}{N} \sum g \hat x \Big)$$

The gradients of \(\gamma\) and \(\beta\) are sums over a rank's own values. The step sums them over the
ranks, like all other gradients.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nearfar.core.ranks import get_world_size, sum_over_ranks
from nearfar.heads.split_batch_norm import BATCH_NORM_TYPES, BatchNormBase


def synchronize_batch_norm(net: nn.Module, device: torch.device) -> None:
    """Make every BatchNorm of the net normalize over all ranks.

    On CUDA it becomes torch's SyncBatchNorm, which exists only there. On other devices it becomes
    `CPUSyncBatchNorm`. A split batch norm stays as it is: its groups are parts of a rank's own rows.
    Parameters, buffers and their names stay as they are, so checkpoints do not depend on the number of ranks.

    Args:
        net: net to change in place.
        device: device of the net.
    """
    for parent in list(net.modules()):
        for name, module in parent.named_children():
            if type(module) not in BATCH_NORM_TYPES:
                continue
            if device.type == "cuda":
                setattr(parent, name, nn.SyncBatchNorm.convert_sync_batchnorm(module))
            else:
                # Keeps the object that parents and the net's hooks refer to.
                module.__class__ = CPUSyncBatchNorm


class CPUSyncBatchNorm(BatchNormBase):
    """BatchNorm1d, 2d or 3d whose training statistics are those of all ranks together.

    Ranks may hold different numbers of rows.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        y, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps)
        self.update_running_stats(mean, variance * (count / (count - 1)))
        return y


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float):
        single = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        mean, variance, count = _moments_of_all(single)
        if count < 2:
            raise ValueError(f"batch normalization needs more than one value per channel in training, got shape {tuple(x.shape)}")
        inverse = (variance + eps).rsqrt()
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.count, ctx.has_bias = count, bias is not None
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(_wide(shift, x), single, _wide(scale, x)).to(x.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, *_: object):  # type: ignore[override]
        x, weight, mean, inverse = ctx.saved_tensors
        grad_single = grad.to(mean.dtype)
        normalised = (x.to(mean.dtype) - _wide(mean, x)) * _wide(inverse, x)
        axes = _all_but_channels(x)
        own = [grad_single.sum(axes), (grad_single * normalised).sum(axes)]
        total = [t.clone() for t in own]
        sum_over_ranks(total)
        scale = inverse if weight is None else inverse * weight
        dx = grad_single - _wide(total[0] / ctx.count, x) - normalised * _wide(total[1] / ctx.count, x)
        return (dx * _wide(scale, x)).to(x.dtype), None if weight is None else own[1], own[0] if ctx.has_bias else None, None


def _moments_of_all(x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return the mean and the (biased) variance of each channel over all ranks.

    The third result is the number of values per channel.
    """
    axes = _all_but_channels(x)
    n = x.numel() // x.shape[1]
    mean = x.sum(axes) / max(n, 1)
    spread = (x - _wide(mean, x)).square().sum(axes)
    own = torch.stack([torch.full_like(mean, n), mean, spread])
    ranks = [torch.empty_like(own) for _ in range(get_world_size())]
    dist.all_gather(ranks, own)
    counts, means, spreads = torch.stack(ranks, 1)
    total = counts.sum(0)
    middle = (counts * means).sum(0) / total
    return middle, (spreads + counts * (means - middle).square()).sum(0) / total, int(total[0])


def _all_but_channels(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _wide(of_channels: Tensor, x: Tensor) -> Tensor:
    """Reshape one number for each channel so that it broadcasts over x."""
    return of_channels.view(1, -1, *[1] * (x.dim() - 2))
