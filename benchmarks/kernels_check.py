"""Are the CUDA kernels right, and how fast? Small, odd and large tables against float64; CLIP and NT-Xent timed against the GEMM rate.

python benchmarks/kernels_check.py [--tune]
"""

from __future__ import annotations

import itertools
import statistics
import sys

import torch
from torch.nn import functional as F

from nearfar import pairs, views
from nearfar.losses import clip, info_nce
from nearfar.scores import dot, kernels, unit_dot


def unit(n: int, d: int, seed: int) -> torch.Tensor:
    g = torch.Generator(device="cuda").manual_seed(seed)
    return F.normalize(torch.randn(n, d, device="cuda", generator=g), dim=1)


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def check(name, loss, dtype, *tensors) -> None:
    """Value and gradients against the same loss in float64 on the same rounded inputs."""
    low = [t.to(dtype).requires_grad_() for t in tensors]
    high = [t.detach().double().requires_grad_() for t in low]
    a, b = loss(*low), loss(*high)
    a.backward()
    b.backward()
    errors = [error(x.grad, y.grad) for x, y in zip(low, high, strict=True)]
    good = abs(float(a) - float(b)) <= 2e-3 * max(1.0, abs(float(b))) and max(errors) < 1e-2
    print(
        f"{'ok    ' if good else 'FAILED'} {name:38} {str(dtype)[6:]:9} {float(a):.4f} / {float(b):.4f}, {[f'{e:.1e}' for e in errors]}",
        flush=True,
    )


def uneven(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows = info_nce(pairs(a, b) / 0.1)
    return (rows * torch.linspace(0, 1, len(rows), device=rows.device, dtype=rows.dtype)).sum()


def median_ms(f, repeats: int = 15) -> float:
    for _ in range(3):
        f()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        f()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def gemm_rate() -> float:
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / median_ms(lambda: a @ a) / 1e9


def timed(name, loss, flop, rate, *tensors, repeats=15) -> None:
    xs = [t.bfloat16().requires_grad_() for t in tensors]

    def step():
        loss(*xs).backward()
        for x in xs:
            x.grad = None

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ms = median_ms(step, repeats)
    extra = (torch.cuda.max_memory_allocated() - before) / 2**30
    print(f"{name:34} {ms:9.2f} ms  {extra:6.2f} GiB  {100 * flop / ms / 1e9 / rate:5.1f} % of {rate:.0f} TFLOP/s", flush=True)


def profile() -> None:
    """Where the time of a CLIP step goes."""
    a, b = (unit(16384, 512, s).bfloat16().requires_grad_() for s in (0, 1))
    clip(a, b, 14.28, unit_dot).backward()
    torch.cuda.synchronize()
    with torch.profiler.profile() as found:
        for _ in range(3):
            clip(a, b, 14.28, unit_dot).backward()
        torch.cuda.synchronize()
    print(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=50))


def tune() -> None:
    a, b = unit(16384, 512, 0), unit(16384, 512, 1)
    rate = gemm_rate()
    x, y = a.bfloat16(), b.bfloat16()
    scale = torch.full((1,), 14.28 * 1.4427, device="cuda")
    lse = torch.zeros(16384, device="cuda")
    out = torch.empty(8192, 16384, device="cuda", dtype=torch.bfloat16)
    for bm, bn, bk, warps, stages, group in itertools.chain(
        itertools.product((128,), (256,), (64,), (8,), (3, 4), (8, 16)),
        itertools.product((128,), (128,), (64, 128), (4, 8), (3, 4), (8,)),
        [(256, 128, 64, 8, 3, 8)],
    ):
        kernels.TILE.update(BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)
        kernels.GROUP = group
        try:
            f = median_ms(lambda: kernels.bounded_lse(x, y, scale, 20.6, 0, False, True), 7)
            o = median_ms(lambda: kernels.online_lse(x, y, scale, 0, False), 7)
            g = median_ms(
                lambda: kernels.slopes(x[:8192], y, (lse[:8192], lse), (lse[:8192], lse, lse), 0, 0, scale, 20.6, False, False, out), 7
            )
        except Exception as e:
            print(bm, bn, bk, warps, stages, type(e).__name__)
            continue
        print(
            f"tile {bm}x{bn}x{bk} warps {warps} stages {stages} group {group}: bounded {f:.3f} ms, online {o:.3f} ms, "
            f"slopes of half the rows {g:.3f} ms, GEMM {2 * 16384**2 * 512 / rate / 1e9:.3f}",
            flush=True,
        )


def main() -> None:
    if "--tune" in sys.argv:
        tune()
        return
    for dtype in (torch.bfloat16, torch.float16):
        check("clip, 2048", lambda a, b: clip(a, b, 14.28), dtype, unit(2048, 512, 0), unit(2048, 512, 1))
        check("clip, scale 100", lambda a, b: clip(a, b, 100.0), dtype, unit(1024, 128, 0), unit(1024, 128, 1))
        check("info_nce of odd sizes", lambda a, b: info_nce(pairs(a, b) / 0.07).mean(), dtype, unit(1003, 77, 0), unit(1501, 77, 1))
        check("nt_xent", lambda a, b: info_nce(views(a, b) / 0.1).mean(), dtype, unit(1000, 96, 0), unit(1000, 96, 1))
        check("nt_xent, tau 0.005", lambda a, b: info_nce(views(a, b) / 0.005).mean(), dtype, unit(800, 64, 0), unit(800, 64, 1))
        check("dot, long vectors", lambda a, b: info_nce(pairs(a, b, score=dot)).mean(), dtype, 8 * unit(900, 64, 0), 8 * unit(900, 64, 1))
        check(
            "rows that weigh differently",
            uneven,
            dtype,
            unit(1000, 64, 0),
            unit(1000, 64, 1),
        )
    tau = torch.tensor(0.1, device="cuda", requires_grad=True)
    for dtype in (torch.bfloat16, torch.float64):
        a, b = (unit(1000, 64, s).bfloat16().to(dtype) for s in (0, 1))
        info_nce(pairs(a, b) / tau.to(torch.float64 if dtype == torch.float64 else torch.float32)).mean().backward()
        print(f"gradient of a learned temperature, {str(dtype)[6:]}: {float(tau.grad):.5f}")
        tau.grad = None
    profile()
    rate = gemm_rate()
    for n, d in ((16384, 512), (65536, 512), (262144, 512), (16384, 128)):
        timed(
            f"CLIP, N = {n}, d = {d}",
            lambda a, b: clip(a, b, 14.28),
            6 * n * n * d,
            rate,
            unit(n, d, 0),
            unit(n, d, 1),
            repeats=15 if n < 100_000 else 3,
        )
    timed(
        "NT-Xent, N = 16384 pairs, d = 512",
        lambda a, b: info_nce(views(a, b, score=unit_dot) / 0.07).mean(),
        24 * 16384**2 * 512,
        rate,
        unit(16384, 512, 0),
        unit(16384, 512, 1),
    )


if __name__ == "__main__":
    main()
