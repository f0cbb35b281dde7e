"""CPU time of tests, for limits that hold on slow and busy machines."""

from __future__ import annotations

import resource
import time

import torch

REFERENCE_SECONDS = 0.075
"""CPU time of `measure_slowness` on one idle core of a server of 2024."""


def measure_cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure_slowness() -> float:
    """Return how many times slower than the reference this machine is now, at least 1.

    The work is typical of the tests: many small operations of torch, called from Python.
    """
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    x, start = torch.ones(32, 64), time.process_time()
    for _ in range(1000):
        net(x).square().mean().backward()
    return max(1.0, (time.process_time() - start) / REFERENCE_SECONDS)
