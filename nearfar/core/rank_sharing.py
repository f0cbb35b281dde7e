"""Sharing of a loss's rows over the ranks, with checks that the ranks agree.

Outside of `shared_over_ranks` a loss is an ordinary function of this process, also in a process group.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.ranks import concat_rank_rows, describe_tensor, gather_numbers, get_rank, get_world_size, hash_parts, sum_over_ranks

NUM_CONTENT_SUMS = 16
"""Number of tensors whose contents are compared one by one. Further tensors are added to these."""
MAX_CUDA_CONTENT_CHECKS = 16
"""Number of shared calls on CUDA, the first of a process, whose contents are compared. Each comparison waits
for the GPU."""


@dataclass(frozen=True)
class RankGroup:
    """Group of ranks that compute one loss together.

    `rank` is the number of this rank. `world_size` is the number of ranks.
    """

    rank: int = 0
    world_size: int = 1

    def split_own_rows(self, n: int, rows_per_block: int) -> Iterator[slice]:
        """Yield slices of this rank's share of n rows, in blocks.

        A rank without rows yields one empty block, so that the shapes of results are known.
        """
        start, stop = self._bounds(n)[self.rank : self.rank + 2]
        return (slice(a, min(a + rows_per_block, stop)) for a in range(start, max(stop, start + 1), rows_per_block))

    def gather(self, share: Tensor, n: int) -> Tensor:
        """Concatenate the ranks' shares of n rows."""
        if self.world_size == 1:
            return share
        bounds = self._bounds(n)
        return concat_rank_rows(share, [b - a for a, b in itertools.pairwise(bounds)])

    def sum(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over these ranks."""
        if self.world_size > 1:
            sum_over_ranks(tensors)

    def _bounds(self, n: int) -> list[int]:
        return [r * n // self.world_size for r in range(self.world_size + 1)]


_is_sharing: ContextVar[bool] = ContextVar("_is_sharing", default=False)


def shared_over_ranks() -> contextlib.AbstractContextManager[None]:
    """Share the rows of score tables over the ranks within the block, as `nearfar fit` does.

    Within the block every rank must call the same losses with the same global batch. Each rank computes its
    share of the rows of large tables and receives the results of all ranks. Backward gives every rank the
    whole gradient, as in a single process. Values and gradients do not depend on the number of ranks. Nothing
    changes without a process group or with one rank.

        z = gather_with_gradient(rows)  # or any other way to the same global batch on every rank
        with shared_over_ranks():
            loss = info_nce(Scores.from_labels(z, labels) / temperature).mean()

    A loss stores in forward that it is shared. Backward may run after the block.

    Before a table is computed, the ranks compare their arguments in one message of 34 numbers over the hosts.
    Different shapes or contents raise `UsageError` on every rank. The comparison of contents reads each
    tensor twice. On CUDA the comparison waits for the GPU, so only the first 16 calls of a process compare
    contents.
    """
    return _set_sharing(True)


def disable_rank_sharing() -> contextlib.AbstractContextManager[None]:
    """Disable rank sharing within the block, so that this process computes all rows."""
    return _set_sharing(False)


@contextlib.contextmanager
def _set_sharing(on: bool) -> Iterator[None]:
    before = _is_sharing.set(on)
    try:
        yield
    finally:
        _is_sharing.reset(before)


def get_sharing_ranks() -> RankGroup:
    """Return the ranks that share the rows of losses.

    Outside of `shared_over_ranks` the group holds only this process.
    """
    return RankGroup(get_rank(), get_world_size()) if _is_sharing.get() else RankGroup()


def check_same_on_ranks(operation: str, tensors: Iterable[Tensor | None]) -> None:
    """Raise `UsageError` on every rank if the ranks that share a table have different tensors.

    Two sums per tensor are compared, up to the rounding of the dtype. The last bits may differ between ranks.

    Args:
        operation: Name of the operation for the error message.
        tensors: Tensors of this rank. None is skipped.
    """
    global _calls_on_cuda
    if get_sharing_ranks().world_size == 1:
        return
    given = list({id(t): t for t in tensors if t is not None}.values())
    on_cuda = any(t.is_cuda for t in given)
    _calls_on_cuda += on_cuda
    compared = [t for t in given if t.numel() and (not on_cuda or _calls_on_cuda <= MAX_CUDA_CONTENT_CHECKS)]
    length = len(given[0]) if given and given[0].dim() else 0
    own = [length, hash_parts(operation, [(t.dtype, tuple(t.shape)) for t in given]), *_contents(compared)]
    difference = _difference(gather_numbers(own).nan_to_num(), _tolerance(compared))
    if difference:
        here = ", ".join(describe_tensor(t) for t in given)
        raise UsageError(
            f"{operation}: every rank must pass the same global batch, but {difference} (rank {get_rank()} has {here}). "
            "Gather the rows first (gather_with_gradient), or compute the loss outside of shared_over_ranks()"
        )


def _difference(everyone: Tensor, tolerance: float) -> str:
    """Describe the difference between the messages of the ranks; return an empty string if they agree."""
    lengths, signatures, sums, sizes = everyone.split([1, 1, NUM_CONTENT_SUMS, NUM_CONTENT_SUMS], 1)
    if (lengths != lengths[0]).any():
        return f"ranks have {', '.join(str(int(n)) for n in lengths)} rows"
    if (signatures != signatures[0]).any():
        return "ranks have different shapes, dtypes or operations"
    others = ((sums - sums[0]).abs() > sizes.amax(0) * tolerance).any(1).nonzero()[:, 0].tolist()
    return f"rank {others[0]} has different values than rank 0" if others else ""


_calls_on_cuda = 0


def _contents(tensors: Sequence[Tensor]) -> list[float]:
    """Return the weighted sum of rows of each slot, then its sum of magnitudes.

    Each row of a tensor has a different weight.
    """
    sums, sizes = [0.0] * NUM_CONTENT_SUMS, [0.0] * NUM_CONTENT_SUMS
    for i, t in enumerate(tensors):
        rows = t.detach().reshape(len(t) if t.dim() else 1, -1)
        if rows.dtype not in (torch.float32, torch.float64):
            rows = rows.float() if rows.is_floating_point() else rows.double()
        weight = 0.5 + (torch.arange(len(rows), device=t.device, dtype=torch.float64) * 0.6180339887498949) % 1
        total = torch.stack([(weight.to(rows.dtype) @ rows).sum(), torch.linalg.vector_norm(rows, 1)])
        for slots, value in zip((sums, sizes), total.tolist(), strict=True):
            slots[i % NUM_CONTENT_SUMS] += value
    return sums + sizes


def _tolerance(tensors: Sequence[Tensor]) -> float:
    """Return the allowed difference of sums, as a share of the magnitudes.

    It is the rounding error of independent entries plus a small margin.
    """
    rounding = [torch.finfo(t.dtype).eps / max(1, t.numel()) ** 0.5 for t in tensors if t.is_floating_point()]
    return 1e-6 + 8 * max(rounding, default=0.0)
