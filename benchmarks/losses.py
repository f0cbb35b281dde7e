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
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from common import write
from peers import LARGEST, LOSSES, TAU, Loss, compiled, implementations
from torch import Tensor
from torch.nn import functional as F

CPU_WIDTH, SMALL, LARGE = 128, 256, 4096
WANTED = {("InfoNCE", LARGE, 1): 0.6, ("NT-Xent", LARGE, 1): 0.35, ("SupCon", LARGE, 1): 0.3}
"""Time over plain torch's that is to be met; elsewhere 1.15 for small batches and 1 for large ones."""
WANTED_MEMORY = 0.2
HOPELESS = 50
"""Whoever needs this many times plain torch's time is timed once."""
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


def step(loss: Loss, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The value and the gradients, one under another; nothing is left in the inputs."""
    for x in inputs[:2]:
        x.grad = None
    value = loss(*inputs)
    value.backward()
    grads = torch.cat([x.grad for x in inputs[:2] if x.grad is not None])
    for x in inputs[:2]:
        x.grad = None
    return value.detach(), grads


def milliseconds(loss: Loss, inputs: Inputs) -> float:
    for x in inputs[:2]:
        x.grad = None
    if inputs[0].is_cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        loss(*inputs).backward()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    began = time.perf_counter()
    loss(*inputs).backward()
    return 1e3 * (time.perf_counter() - began)


def compare(contest: dict[str, Loss], inputs: Inputs, tolerance: float, judged: tuple[str, ...]) -> dict[str, float]:
    """Each gradient's distance from plain torch's in float64, over its length. An error where a judged one is too far away."""
    a, b, y = inputs
    doubles = a.detach().double().requires_grad_(), b.detach().double().requires_grad_(), y
    value, grads = step(_in_double(contest["plain torch"]), doubles)
    found = {}
    for name, loss in contest.items():
        v, g = step(loss, inputs)
        found[name] = float((g.double() - grads).norm() / grads.norm())
        off = abs(float(v) - float(value)) / max(1.0, abs(float(value)))
        assert name not in judged or (found[name] < tolerance and off < tolerance), f"{name}: value off by {off}, gradient by {found[name]}"
    return found


def _in_double(plain: Loss) -> Loss:
    """Plain torch makes single precision of its logits; in float64 it must not."""

    def loss(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
        whole = Tensor.float
        Tensor.float = Tensor.double  # type: ignore[method-assign]
        try:
            return plain(a, b, y)
        finally:
            Tensor.float = whole  # type: ignore[method-assign]

    return loss


def timed(contest: dict[str, Loss], inputs: Inputs, rounds: int) -> dict[str, float]:
    """Milliseconds of each: interleaved rounds, the median of the faster half."""
    first = {name: milliseconds(loss, inputs) for name, loss in contest.items()}
    runners = {name: loss for name, loss in contest.items() if first[name] < HOPELESS * first["plain torch"]}
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, loss in runners.items():
            times[name].append(milliseconds(loss, inputs))
    return first | {name: statistics.median(sorted(t)[: (rounds + 1) // 2]) for name, t in times.items()}
