"""The CUDA kernels, run by Triton's interpreter on a CPU: small tables against float64 (on a GPU: benchmarks/kernels_check.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import json, math, torch
from nearfar.scores import kernels

kernels.TILE.update(BM=32, BN=32, BK=16)
LOG2E = kernels.LOG2E


def vectors(n, d, seed):
    return torch.nn.functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1).half()


def error(a, b):
    return float((a.double() - b.double()).abs().max())


found = {}
for name, n, m, d, exclude_self, shift in [
    ("even", 64, 96, 32, False, 0),
    ("odd", 45, 71, 21, False, 0),
    ("views", 58, 58, 24, True, 29),
    ("one column", 5, 1, 16, False, 0),
]:
    q = vectors(n, d, 0)
    k = q if exclude_self else vectors(m, d, 1)
    for tau in (0.5, 0.05):
        scale = torch.full((1,), LOG2E / tau)
        s = q.double() @ k.double().T / tau
        pos = s[torch.arange(n), (torch.arange(n) + shift) % m]
        if exclude_self:
            s.fill_diagonal_(-math.inf)
        rows, got_pos = kernels.online_lse(q, k, scale, shift, exclude_self)
        errors = {"online": error(rows / LOG2E, s.logsumexp(1)), "partners": error(got_pos / LOG2E, pos)}
        bounded_rows, cols, got_pos = kernels.bounded_lse(q, k, scale, LOG2E / tau, shift, exclude_self, True)
        errors["bounded"] = error(bounded_rows / LOG2E, s.logsumexp(1))
        errors["columns"] = error(cols / LOG2E, s.logsumexp(0))
        errors["partners again"] = error(got_pos / LOG2E, pos)
        weight, col_weight, pos_weight = torch.linspace(0.2, 1, n), torch.linspace(1, 0.3, m), torch.linspace(-1, -0.1, n)
        expected = s.softmax(1) * weight[:, None] + s.softmax(0) * col_weight
        if shift or n == m:
            at = (torch.arange(n), (torch.arange(n) + shift) % m)
        else:
            at = (torch.arange(n), torch.arange(n) % m)
        expected[at] += pos_weight.double()
        for bound in (None, LOG2E / tau):
            out = torch.full((n, m), float("nan"), dtype=torch.float16)
            half = n // 2
            for start, stop in ((0, half), (half, n)):  # rows in two blocks, as in a large table
                part = slice(start, stop)
                kernels.slopes(
                    q[part], k, (rows[part].contiguous(), cols), (weight[part].contiguous(), col_weight, pos_weight),
                    start, shift, scale, bound, exclude_self, False, out[part],
                )
            errors[f"slopes, bound {bound is not None}"] = error(out, expected)
        found[f"{name}, tau {tau}"] = errors
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_statistics_are_right_to_single_precision(errors):
    statistics = {(case, what): e for case, found in errors.items() for what, e in found.items() if "slopes" not in what}
    assert len(statistics) == 40
    assert max(statistics.values()) < 2e-4, statistics


def test_gradients_of_scores_are_right_to_half_precision(errors):
    slopes = {(case, what): e for case, found in errors.items() for what, e in found.items() if "slopes" in what}
    assert len(slopes) == 16
    assert max(slopes.values()) < 2e-3, slopes
