"""Gradients summed over the ranks in pieces, each as soon as it is whole, while the backward pass still makes the others."""

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
"""Bytes of a bucket: large enough that a network is used well, small enough that the first leaves early."""


class GradientBuckets:
    """`with buckets.summing(): backward` leaves in every `p.grad` its sum over the ranks.

    The last parameters come first, because backward reaches them first. Buckets leave in that order on every rank,
    whatever arrives when: messages of different buckets never meet. Each carries beside its gradients one flag a
    parameter. A parameter that one rank has no gradient of counts as zero there; one that no rank has a gradient of
    keeps none, so that an optimizer leaves it alone as on one rank.
    """

    def __init__(self, params: Sequence[nn.Parameter], bucket_bytes: int = BUCKET_BYTES):
        self.buckets = _pack(params[::-1], bucket_bytes)
        self.pending_counts: list[int] | None = None
        """Gradients each bucket still waits for; None outside of `summing`, where gradients are not counted."""
        self.sent: list[tuple[Tensor, Any]] = []
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(functools.partial(self._arrived, i))

    @contextlib.contextmanager
    def reduce_gradients(self) -> Iterator[None]:
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
    """Consecutive parameters of one dtype, together at most `size` bytes unless one alone is larger."""
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
    """Sums back to where they belong. Flags are read, which waits for a GPU, only where this rank lacks a gradient."""
    *sums, flags = flat.split([*(p.numel() for p in bucket), len(bucket)])
    lacking = any(p.grad is None for p in bucket)
    wanted = [count > 0 for count in flags.tolist()] if lacking else [True] * len(bucket)
    for p, total, needed in zip(bucket, sums, wanted, strict=True):
        if needed:
            p.grad = torch.empty_like(p) if p.grad is None else p.grad
            p.grad.copy_(total.view(p.shape))
