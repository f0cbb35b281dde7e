"""Hash of `random_key` as a single CUDA kernel.

SimCLR's views draw about twelve times per step. With torch's operations each draw takes some forty tiny
kernels, and the GPU runs them one after the other. Here each draw is one launch. Integers are hashed as in
`random_key`, and the conversion to floats is exact. The numbers are therefore the same to the last bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

ELEMENTS_PER_BLOCK = 1024


@triton.jit
def _mix(x):
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit(do_not_specialize=["word", "total", "columns"])
def _hash(slots, out, word, total, columns, UNIFORM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + at // columns, mask=at < total, other=0).to(tl.uint64)
    row = _mix(_mix(slot) ^ word.to(tl.uint64))
    found = _mix(row + (at % columns).to(tl.uint64) * 0xD1342543DE82EF95)
    if UNIFORM:
        tl.store(out + at, (found >> 40).to(tl.float32) * 5.9604644775390625e-08, mask=at < total)  # 2^-24
    else:
        tl.store(out + at, found.to(tl.int64), mask=at < total)


def bits(slots: Int64[Tensor, " n"], key_hash: int, columns: int) -> Int64[Tensor, "n {columns}"]:
    """Compute `RandomKey.bits` on a GPU, shape (n, columns).

    `key_hash` is the hash of the key, as a signed 64-bit integer.
    """
    return _launch(slots, key_hash, columns, torch.int64)


def uniform(slots: Int64[Tensor, " n"], key_hash: int, columns: int) -> Float[Tensor, "n {columns}"]:
    """Compute `RandomKey.uniform` on a GPU, shape (n, columns)."""
    return _launch(slots, key_hash, columns, torch.float32)


def _launch(slots: Tensor, key_hash: int, columns: int, dtype: torch.dtype) -> Tensor:
    out = torch.empty(len(slots), columns, dtype=dtype, device=slots.device)
    if not (total := out.numel()):
        return out
    with torch.cuda.device_of(slots):  # Triton launches on the current device, not on that of its inputs
        _hash[(triton.cdiv(total, ELEMENTS_PER_BLOCK),)](
            slots.contiguous(), out, key_hash, total, columns, dtype == torch.float32, ELEMENTS_PER_BLOCK
        )
    return out
