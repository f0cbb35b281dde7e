"""The CUDA kernels, run by Triton's interpreter on a CPU: small tables against float64 (on a GPU: benchmarks/kernels_check.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("kernels_script.py")


def run(ranks: int, meeting: Path) -> list[dict[str, dict[str, float]]]:
    """What each process printed."""
    pytest.importorskip("triton")
    every = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    own = [{"RANK": str(i), "WORLD_SIZE": str(ranks)} for i in range(ranks)] if ranks > 1 else [{}]
    command = [sys.executable, str(SCRIPT), str(meeting)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=every | more) for more in own]
    found = []
    for process in processes:
        out, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
        found.append(json.loads(out))
    return found


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, dict[str, float]]:
    return run(1, tmp_path_factory.mktemp("alone") / "unused")[0]


def pick(errors: dict[str, dict[str, float]], part: str) -> dict[tuple[str, str], float]:
    return {(case, what): e for case, found in errors.items() for what, e in found.items() if what.startswith(part)}


def test_statistics_are_right_to_single_precision(errors):
    values = pick(errors, "value")
    assert len(values) == 132
    assert max(values.values()) < 2e-4, values


def test_gradients_are_right_to_half_precision(errors):
    slopes = pick(errors, "query") | pick(errors, "key")
    assert len(slopes) == 84
    assert max(slopes.values()) < 4e-3, slopes


def test_a_learned_scale_has_its_gradient(errors):
    slopes = pick(errors, "scale")
    assert len(slopes) == 14
    assert max(slopes.values()) < 4e-3, slopes


def test_two_ranks_share_the_rows(tmp_path):
    for errors in run(2, tmp_path / "meeting"):
        assert max(pick(errors, "value").values()) < 2e-4, errors
        assert max((pick(errors, "query") | pick(errors, "key")).values()) < 4e-3, errors
