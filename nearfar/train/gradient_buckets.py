"""Gradient buckets: sums of gradients over the ranks, sent in pieces.

Each bucket is sent as soon as it is complete, while the backward pass computes the others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearfar.train.row_adagrad import densify

BUCKET_BYTES = 25 << 20
"""Size of a bucket in bytes: large enough to use the network well, small enough to send the first one
early."""


class GradientBuckets:
    """Buckets that replace every `p.grad` by its sum over the ranks.

    Use them as `with buckets.reduce_gradients(): backward`. The last parameters come first, because the
    backward pass reaches them first. Buckets are sent in this order on every rank, even if gradients arrive
    in another order, so that messages of different buckets are never mixed up.

    Each bucket also holds one flag per parameter. If one rank has no gradient for a parameter, its gradient
    counts as zero. If no rank has one, the parameter keeps none, and the optimizer does not move it, as on a
    single rank.
    """

    def __init__(self, params: Sequence[nn.Parameter], bucket_bytes: int = BUCKET_BYTES):
        self.buckets = _pack(params[::-1], bucket_bytes)
        self.pending_counts: list[int] | None = None
        """Number of gradients each bucket still waits for. None outside of `reduce_gradients`, where
        gradients are not counted."""
        self.sent: list[tuple[Tensor, Any]] = []
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(functools.partial(self._arrived, i))

    @contextlib.contextmanager
    def reduce_gradients(self) -> Iterator[None]:
        """Sum the gradients of the backward pass within the block over the ranks."""
        self.pending_counts, self.sent = [len(bucket) for bucket in self.buckets], []
        try:
            yield
            while len(self.sent) < len(self.buckets):
                self._send()
        finally:
            self.pending_counts = None
        for bucket, (flat, message) in zip(self.buckets, self.sent, strict=True):
            message.wait()
            _unpack(bucket, flat)
        self.sent = []

    def _arrived(self, bucket: int, p: Tensor) -> None:
        if self.pending_counts is None:
            return
        self.pending_counts[bucket] -= 1
        while len(self.sent) < len(self.buckets) and self.pending_counts[len(self.sent)] == 0:
            self._send()

    def _send(self) -> None:
        bucket = self.buckets[len(self.sent)]
        densify(bucket)
        has = [p.grad is not None for p in bucket]
        flags = bucket[0].new_ones(len(bucket)) if all(has) else bucket[0].new_tensor(has)
        flat = torch.cat([*((torch.zeros_like(p) if p.grad is None else p.grad).detach().reshape(-1) for p in bucket), flags])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))


def _pack(params: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Pack consecutive parameters of one dtype into buckets.

    A bucket has at most `bucket_bytes` bytes, unless a single parameter is larger.
    """
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for p in params:
        if not buckets or p.nbytes > room or p.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(p)
        room -= p.nbytes
    return buckets


def _unpack(bucket: list[nn.Parameter], flat: Tensor) -> None:
    """Copy the sums back to the gradients.

    To read the flags waits for the GPU. They are read only if this rank lacks a gradient.
    """
    *sums, flags = flat.split([*(p.numel() for p in bucket), len(bucket)])
    lacking = any(p.grad is None for p in bucket)
    wanted = [count > 0 for count in flags.tolist()] if lacking else [True] * len(bucket)
    for p, total, needed in zip(bucket, sums, wanted, strict=True):
        if needed:
            p.grad = torch.empty_like(p) if p.grad is None else p.grad
            p.grad.copy_(total.view(p.shape))
