"""How fast are losses, and how much memory do they take? nearfar, plain torch and other packages in the same run.

    python benchmarks/losses.py [--device cpu|cuda] [--quick]

Forward and backward, cosine scores. Values and gradients of all are compared before anything is timed; rounds of all
implementations are interleaved, and the median of the faster half counts, because other work on the machine only ever adds time.

CPU: fp32, d = 128; one and two threads. Memory is what the process holds at its peak beyond what it held before, in a fresh
process for each implementation. CUDA: bf16, unit vectors of d = 512 and 128; the share of the GEMM rate measured in the same run
counts the three matrix products nobody can avoid, 6 N² d flop (NT-Xent, of 2N rows: 24 N² d).

Prints a table and writes benchmarks/results/losses_cpu.json or losses_gpu.json.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import write
from peers import LARGEST, LOSSES, TAU, Loss, compiled, implementations
from provenance import GENERATED, agrees, provenance
from torch import Tensor
from torch.nn import functional as F

CPU_WIDTH, SMALL, LARGE = 128, 256, 4096
WANTED = {("InfoNCE", LARGE, 1): 0.6, ("NT-Xent", LARGE, 1): 0.35, ("SupCon", LARGE, 1): 0.3}
"""Time over plain torch's that is to be met; elsewhere 1.15 for small batches and 1 for large ones."""
WANTED_MEMORY = 0.2
HOPELESS = 50
"""Whoever needs this many times plain torch's time is timed once."""
FEWEST_ROUNDS, PATIENCE = 5, 30.0
"""After so many seconds that many rounds are enough."""
TABLES_FIT = 16_384
"""Up to this batch a GPU holds the tables that others make."""
GPU_CASES = (
    *(("CLIP", n, 512) for n in (16_384, 65_536, 262_144, 1_048_576)),
    ("CLIP", 16_384, 128),
    ("InfoNCE", 16_384, 512),
    ("NT-Xent", 16_384, 512),
)
Inputs = tuple[Tensor, Tensor, Tensor]


def batch(n: int, d: int, device: str = "cpu") -> Inputs:
    """Two views of n things, somewhat alike, and labels of ten classes. On CUDA of length 1, in bf16."""
    draw = torch.Generator(device=device).manual_seed(0)
    a = torch.randn(n, d, generator=draw, device=device)
    b = a + torch.randn(n, d, generator=draw, device=device)
    y = torch.randint(0, 10, (n,), generator=draw, device=device)
    if device == "cuda":
        a, b = F.normalize(a).bfloat16(), F.normalize(b).bfloat16()
    return a.requires_grad_(), b.requires_grad_(), y


def step(loss: Loss, inputs: Inputs) -> tuple[float, Tensor]:
    """The value, and the gradients one under another."""
    value = loss(*inputs)
    grads = torch.autograd.grad(value, inputs[:2], allow_unused=True)
    return float(value.detach()), torch.cat([g for g in grads if g is not None])


def milliseconds(loss: Loss, inputs: Inputs) -> float:
    for x in inputs[:2]:
        x.grad = None
    if inputs[0].is_cuda:
        return cuda_milliseconds(lambda: loss(*inputs).backward())
    began = time.perf_counter()
    loss(*inputs).backward()
    return 1e3 * (time.perf_counter() - began)


def cuda_milliseconds(run: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def compare(contest: dict[str, Loss], inputs: Inputs, tolerance: float) -> dict[str, float]:
    """Each gradient's distance from plain torch's in float64, over its length; an error where it, or the value, is too far off."""
    a, b, y = inputs
    value, grads = step(contest["plain torch"], (a.detach().double().requires_grad_(), b.detach().double().requires_grad_(), y))
    found = {}
    for name, loss in contest.items():
        v, g = step(loss, inputs)
        found[name] = float((g.double() - grads).norm() / grads.norm())
        off = max(found[name], abs(v - value) / max(1.0, abs(value)))
        assert off < tolerance, f"{name} is off by {off:.1e}, more than {tolerance:.0e}"
    return found


def timed(contest: dict[str, Loss], inputs: Inputs, rounds: int) -> dict[str, float]:
    """Milliseconds of each: interleaved rounds, the median of the faster half."""
    first = {name: milliseconds(loss, inputs) for name, loss in contest.items()}
    limit = HOPELESS * first.get("plain torch", math.inf)
    times: dict[str, list[float]] = {name: [] for name in contest if first[name] < limit}
    began = time.perf_counter()
    for done in range(rounds):
        if done >= FEWEST_ROUNDS and time.perf_counter() - began > PATIENCE:
            break
        for name in times:
            times[name].append(milliseconds(contest[name], inputs))
    return first | {name: statistics.median(sorted(t)[: (len(t) + 1) // 2]) for name, t in times.items()}


def on_cpu(quick: bool) -> list[dict[str, Any]]:
    rows = []
    print(f"{'loss':9}{'N':>6}{'threads':>8}  {'':34}{'ms':>9}{'of plain':>9}{'wanted':>8}{'MB':>8}{'of plain':>9}")
    for loss, n in ((loss, n) for n in (SMALL, LARGE) for loss in LOSSES):
        contest = {name: run for name, run in implementations(loss).items() if n <= LARGEST.get((loss, name), n)}
        inputs = batch(n, CPU_WIDTH)
        errors = compare(contest, inputs, tolerance=1e-4)
        megabytes = {name: extra_megabytes(loss, name, n) for name in contest}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            ms = timed(contest, inputs, rounds=(20 if quick else 200) if n == SMALL else (3 if quick else 9))
            for name in contest:
                row = {"loss": loss, "n": n, "d": CPU_WIDTH, "threads": threads, "implementation": name}
                row |= {"ms": round(ms[name], 3), "of_plain": round(ms[name] / ms["plain torch"], 3)}
                row |= {"mb": megabytes[name], "mb_of_plain": round(megabytes[name] / megabytes["plain torch"], 3)}
                rows.append(row | {"gradient_error": errors[name]} | ({"wanted": wanted(loss, n, threads)} if name == "nearfar" else {}))
                print_row(rows[-1])
        torch.set_num_threads(1)
    return rows


def print_row(row: dict[str, Any]) -> None:
    limit = f"{row['wanted']:8.2f}" if "wanted" in row else " " * 8
    time_, memory = f"{row['ms']:9.2f}{row['of_plain']:9.2f}", f"{row['mb']:8.1f}{row['mb_of_plain']:9.2f}"
    print(f"{row['loss']:9}{row['n']:>6}{row['threads']:>8}  {row['implementation']:34}{time_}{limit}{memory}", flush=True)


def wanted(loss: str, n: int, threads: int) -> float:
    return WANTED.get((loss, n, threads), 1.0 if n == LARGE else 1.15)


def extra_megabytes(loss: str, name: str, n: int) -> float:
    """Measured by a fresh process, which runs `report_memory`."""
    command = [sys.executable, __file__, "--memory", loss, name, str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report_memory(loss: str, name: str, n: int) -> None:
    """Prints the largest memory a step held beyond what was held before it. A tiny step before loads what is loaded once."""
    torch.set_num_threads(1)
    run = implementations(loss)[name]
    milliseconds(run, batch(8, CPU_WIDTH))
    inputs = batch(n, CPU_WIDTH)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    before = _kilobytes("VmRSS")
    milliseconds(run, inputs)
    print(round((_kilobytes("VmHWM") - before) / 1e3, 1))


def _kilobytes(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, f"/proc/self/status has no {field}"
    return int(found[1])


def on_cuda(quick: bool) -> tuple[float, list[dict[str, Any]]]:
    rate, rows = gemm_rate(), []
    print(f"GEMM: {rate:.0f} TFLOP/s\n{'loss':9}{'N':>9}{'d':>5}  {'':34}{'ms':>10}{'GiB':>8}{'% of GEMM':>11}{'gradient error':>16}")
    for loss, n, d in GPU_CASES[:1] + GPU_CASES[-3:] if quick else GPU_CASES:
        contest = implementations(loss, normalised=True) | compiled(loss)
        contest = {name: run for name, run in contest.items() if (loss, name) not in LARGEST}
        contest = {name: run for name, run in contest.items() if works(name, run, batch(128, d, "cuda"))}
        errors = compare(contest, batch(2048, d, "cuda"), tolerance=math.inf)
        assert errors["nearfar"] < 1e-2, f"{loss}: nearfar's gradient is off by {errors['nearfar']:.1e}"
        contest = contest if n <= TABLES_FIT else {"nearfar": contest["nearfar"]}
        inputs = batch(n, d, "cuda")
        gigabytes = {name: extra_gigabytes(run, inputs) for name, run in contest.items()}
        ms = timed(contest, inputs, rounds=30 if n <= TABLES_FIT else max(1, 2**20 // n // 2))
        for name in contest:
            share = 100 * (24 if loss == "NT-Xent" else 6) * n**2 * d / ms[name] / 1e9 / rate
            row = {"loss": loss, "n": n, "d": d, "implementation": name, "ms": round(ms[name], 3), "gib": round(gigabytes[name], 3)}
            rows.append(row | {"percent_of_gemm": round(share, 1), "gradient_error": errors[name]})
            print(f"{loss:9}{n:>9}{d:>5}  {name:34}{ms[name]:10.2f}{gigabytes[name]:8.2f}{share:11.1f}{errors[name]:16.1e}", flush=True)
    return rate, rows


def works(name: str, loss: Loss, inputs: Inputs) -> bool:
    """Whether it runs on this machine: a compiler may be missing. nearfar has no excuse."""
    try:
        step(loss, inputs)
    except RuntimeError as error:
        if name == "nearfar":
            raise
        print(f"{name} is left out: {str(error).splitlines()[0]}")
        return False
    return True


def gemm_rate() -> float:
    """TFLOP/s of a large product in bf16, kept up long enough for the clocks to settle as they do under a loss."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / statistics.median(cuda_milliseconds(lambda: a @ a) for _ in range(300)) / 1e9


def extra_gigabytes(loss: Loss, inputs: Inputs) -> float:
    """Of the second step, where the first is short: kernels are built in it, and workspaces made."""
    if len(inputs[0]) <= TABLES_FIT:
        milliseconds(loss, inputs)
    for x in inputs[:2]:
        x.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    milliseconds(loss, inputs)
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def settings(device: str, quick: bool = False) -> dict[str, Any]:
    """Return what is measured on a device."""
    on_cpu = {"d": CPU_WIDTH, "n": [SMALL, LARGE], "losses": LOSSES, "threads": [1, 2]}
    return {"temperature": TAU, "quick": quick, **(on_cpu if device == "cpu" else {"cases": GPU_CASES})}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored result has today's settings."""
    return agrees(row, settings("cuda" if "gemm_tflops" in row else "cpu"))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and on CUDA only what fits in seconds")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.memory:
        return report_memory(args.memory[0], args.memory[1], int(args.memory[2]))
    told = provenance(settings(args.device, args.quick), GENERATED)
    if args.device == "cpu":
        path = write("losses_cpu", told | {"wanted_memory": WANTED_MEMORY, "results": on_cpu(args.quick)})
    else:
        rate, rows = on_cuda(args.quick)
        path = write("losses_gpu", told | {"gemm_tflops": round(rate, 1), "results": rows})
    print(f"written to {path}")


if __name__ == "__main__":
    main()
