"""Run by test_kernels.py under Triton's interpreter: tables of half-precision vectors on the kernels against float64.

Prints, as JSON, the largest error of each statistic and of each gradient, relative to the largest entry. With RANK and WORLD_SIZE in
the environment the table's rows are shared among processes; backward runs after the block that shares them. Each case then has one
scale instead of three, in turn: how rows are shared does not depend on the scale.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F

from nearfar.losses import clip, info_nce
from nearfar.scores import Scores, dot, half, kernels, shared_over_ranks, unit_dot

kernels.SUM_TILE.update(BM=32, BN=32, BK=16)
kernels.GRADIENT_TILE.update(BM=32, BN=16, BK=16)
half.MIN_BLOCK_ROWS, half.MAX_BLOCK_BYTES = 32, 0
half.can_use_kernels = lambda q, k: True  # the interpreter runs on a CPU
ALL, NEG, POS = Scores.all_lse, Scores.neg_lse, Scores.pos_sum


def vectors(n: int, d: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1).half()


def pairs(n: int, m: int, d: int, score=unit_dot, **more) -> Scores:
    ids = torch.arange(m)
    return Scores(vectors(n, d, 0), vectors(m, d, 1), ids[:n], ids, score=score, id_period=m, **more)


def views(n: int, d: int, **more) -> Scores:
    z, ids = vectors(2 * n, d, 2), torch.arange(n).repeat(2)
    return Scores(z, z, ids, ids, exclude_self=True, score=unit_dot, id_period=n, **more)


def matched(n: int, m: int, d: int) -> Scores:
    own = torch.linspace(-1, 1, n)[:, None]
    return Scores(vectors(n, d, 0), vectors(m, d, 1), score=unit_dot, private_scores=own, private_signs=torch.ones(n, 1, dtype=torch.int8))


def skips(n: int, step: int = 1) -> torch.Tensor:
    return torch.arange(n) * step % 5 - 1


rows29 = skips(58, 3)
CASES = {
    "even pairs": (pairs(64, 64, 32), (ALL, POS)),
    "odd pairs, more columns than rows": (pairs(45, 71, 21), (ALL, NEG, POS, Scores.pos_count)),
    "views": (views(29, 24), (ALL, POS, NEG.with_power(2))),
    "views of an odd number of tiles": (views(48, 16), (ALL, POS, NEG)),
    "views that fill their tiles": (views(64, 32), (ALL, NEG)),
    "labelled": (Scores(z := vectors(50, 16, 3), z, y := torch.arange(50) % 4, y, exclude_self=True, score=unit_dot), (ALL,)),
    "own positives against a queue": (matched(40, 70, 16), (ALL, POS, Scores.pos_count)),
    "pairs without duplicates": (pairs(45, 50, 16, row_skip=skips(45), col_skip=skips(50, 2)), (ALL, NEG, POS)),
    "views without duplicates": (views(29, 24, row_skip=rows29, col_skip=rows29), (ALL, NEG)),
    "columns without duplicates": (
        Scores(vectors(33, 16, 0), vectors(40, 16, 1), row_skip=skips(33), col_skip=skips(40), score=unit_dot), (ALL,)),
    "one column": (pairs(1, 1, 16), (ALL, POS)),
    "equal vectors, not the same": (Scores(z, z.clone(), y, y, exclude_self=True, score=unit_dot), (ALL,)),
    "any length": (pairs(40, 40, 16, dot), (ALL, POS)),
}  # fmt: skip
SCALES = ((2.0, False), (20.0, True), (200.0, False))
"""Scales of the scores, and whether they are learned."""
BOTH_WAYS = ("even pairs", "one column", "any length")


def outcome(S: Scores, asked, both: bool, scale: float, learned: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Statistics, and gradients of a weighted sum of them."""
    query = S.query.detach().to(dtype, copy=True).requires_grad_()
    key = query if S.key is S.query else S.key.detach().to(dtype, copy=True).requires_grad_()
    by = torch.tensor(scale, dtype=torch.float64 if dtype == torch.float64 else torch.float32, requires_grad=learned)
    own = None if S.private_scores is None else S.private_scores.to(by.dtype)
    S = dataclasses.replace(S, query=query, key=key, private_scores=own) * (by if learned else scale)
    with shared_over_ranks():
        found = S.row_and_column_stats(*asked) if both else (S.stats(*asked), ())
        values = [v for side in found for v in side]
        values += [info_nce(S)] if POS in asked else []
    finite = [v.masked_fill(v.isinf(), 0) for v in values]
    torch.stack([(v * torch.linspace(0.1, 1, len(v), dtype=v.dtype)).mean() for v in finite]).sum().backward()
    leaves = {"query": query, "key": key, "scale": by}
    return {f"value {i}": v.detach() for i, v in enumerate(values)} | {k: x.grad for k, x in leaves.items() if x.grad is not None}


def clip_outcome(scale: float, learned: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    a, b = (vectors(45, 21, seed).to(dtype, copy=True).requires_grad_() for seed in (4, 5))
    by = torch.tensor(scale, dtype=torch.float64 if dtype == torch.float64 else torch.float32, requires_grad=learned)
    given = by if learned else scale
    with shared_over_ranks():
        loss = half.half_clip(a, b, given, -1.0) if dtype == torch.float16 else clip(a, b, given, unit_dot)
    (3 * loss).backward()
    leaves = {"query": a, "key": b, "scale": by}
    return {"value": loss.detach()} | {k: x.grad for k, x in leaves.items() if x.grad is not None}


def error(a: torch.Tensor, b: torch.Tensor, least: float = 0.1) -> float:
    """The largest difference over the largest number, which counts as `least` at least."""
    a, b = (x.double().masked_fill(x.isinf(), 1e3) for x in (a, b))
    return float((a - b).abs().max() / b.abs().max().clamp_min(least))


def main() -> None:
    if "RANK" in os.environ:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=ranks)
    found = {}
    for i, (name, (S, asked)) in enumerate(CASES.items()):
        for scale, learned in [SCALES[i % len(SCALES)]] if dist.is_initialized() else SCALES:
            both = name in BOTH_WAYS
            mine, exact = (outcome(S, asked, both, scale, learned, dtype) for dtype in (torch.float16, torch.float64))
            assert mine.keys() == exact.keys(), (name, mine.keys(), exact.keys())
            found[f"{name}, scale {scale}"] = {k: error(mine[k], exact[k]) for k in exact}
    for scale, learned in SCALES:
        mine, exact = (clip_outcome(scale, learned, dtype) for dtype in (torch.float16, torch.float64))
        found[f"clip, scale {scale}"] = {k: error(mine[k], exact[k]) for k in exact}
    print(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
