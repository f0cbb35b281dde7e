"""Are the CUDA kernels right? Losses on half-precision vectors, of small, odd and large tables, against float64.

    python benchmarks/kernels_check.py

Prints one line a check; exit code 1 if one fails. How fast they are: benchmarks/losses.py --device cuda.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch.nn import functional as F

from nearfar.losses import clip, debiased, info_nce
from nearfar.scores import Scores, dot

WANTED = {"bfloat16": (2e-3, 1e-2), "float16": (2e-3, 1e-2), "tf32": (2e-3, 1e-2), "float32": (1e-6, 1e-5)}
"""How far values and gradients may be from float64; of gradients, relative to their length."""
FAILED = []


def unit(n: int, d: int, seed: int) -> torch.Tensor:
    g = torch.Generator(device="cuda").manual_seed(seed)
    return F.normalize(torch.randn(n, d, device="cuda", generator=g), dim=1)


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def check(name, loss, precision, *tensors) -> None:
    """Value and gradients against the same loss in float64 on the same rounded inputs. tf32: single precision, products rounded."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    low = [t.to(torch.float32 if precision == "tf32" else getattr(torch, precision)).requires_grad_() for t in tensors]
    high = [t.detach().double().requires_grad_() for t in low]
    a, b = loss(*low), loss(*high)
    a.backward()
    b.backward()
    errors = [error(x.grad, y.grad) for x, y in zip(low, high, strict=True)]
    value, slope = WANTED[precision]
    good = abs(float(a) - float(b)) <= value * max(1.0, abs(float(b))) and max(errors) < slope
    FAILED.extend([] if good else [name])
    state, shown = "ok    " if good else "FAILED", [f"{e:.1e}" for e in errors]
    print(f"{state} {name:30} {precision:9} {float(a):.4f} / {float(b):.4f}, {shown}", flush=True)


def uneven(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows = info_nce(Scores.from_pairs(a, b) / 0.1)
    return (rows * torch.linspace(0, 1, len(rows), device=rows.device, dtype=rows.dtype)).sum()


def skipping(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    groups = torch.arange(len(a), device=a.device) // 4
    return info_nce(Scores.from_pairs(a, b).exclude_negatives(groups, groups) / 0.1).mean()


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])


def main() -> int:
    parser().parse_args()
    for precision in WANTED:
        check("clip, 2048", lambda a, b: clip(a, b, 14.28), precision, unit(2048, 512, 0), unit(2048, 512, 1))
        check("clip, scale 100", lambda a, b: clip(a, b, 100.0), precision, unit(1024, 128, 0), unit(1024, 128, 1))
        check(
            "info_nce of odd sizes",
            lambda a, b: info_nce(Scores.from_pairs(a, b) / 0.07).mean(),
            precision,
            unit(1003, 77, 0),
            unit(1501, 77, 1),
        )
        check("nt_xent", lambda a, b: info_nce(Scores.from_views(a, b) / 0.1).mean(), precision, unit(1000, 96, 0), unit(1000, 96, 1))
        check(
            "nt_xent, tau 0.005",
            lambda a, b: info_nce(Scores.from_views(a, b) / 0.005).mean(),
            precision,
            unit(800, 64, 0),
            unit(800, 64, 1),
        )
        check(
            "dot, long vectors",
            lambda a, b: info_nce(Scores.from_pairs(a, b, score=dot)).mean(),
            precision,
            8 * unit(900, 64, 0),
            8 * unit(900, 64, 1),
        )
        check("rows that weigh differently", uneven, precision, unit(1000, 64, 0), unit(1000, 64, 1))
        check(
            "a queue",
            lambda q, k, m: info_nce(Scores.from_matched(q, k, m) / 0.07).mean(),
            precision,
            unit(500, 64, 0),
            unit(500, 64, 1),
            unit(3000, 64, 2),
        )
        check("debiased", lambda a, b: debiased(Scores.from_views(a, b) / 0.5).mean(), precision, unit(1000, 64, 0), unit(1000, 64, 1))
        check("known duplicates", skipping, precision, unit(1000, 64, 0), unit(1000, 64, 1))
    torch.backends.cuda.matmul.allow_tf32 = False
    tau = torch.tensor(0.1, device="cuda", requires_grad=True)
    for dtype in (torch.bfloat16, torch.float64):
        a, b = (unit(1000, 64, s).bfloat16().to(dtype) for s in (0, 1))
        info_nce(Scores.from_pairs(a, b) / tau.to(torch.float64 if dtype == torch.float64 else torch.float32)).mean().backward()
        print(f"gradient of a learned temperature, {str(dtype)[6:]}: {float(tau.grad):.5f}")
        tau.grad = None
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
