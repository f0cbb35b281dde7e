"""Encoders through torch.compile: the same training, and what a compiler stumbles over is kept from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch
from helpers import assert_same_tensors, stored
from torch._inductor import config

import nearfar
from nearfar.encoders import ConvNet
from nearfar.heads import split_batch_norm
from nearfar.train.compile_encoders import _options

pytestmark = pytest.mark.slow
FIT = """
import sys, nearfar
from torch._dynamo.utils import counters
nearfar.fit("moco-v2", data="digits", steps=3, batch_size=32, queue_size=64, batch_norm_groups=2, symmetric=True, optimizer="sgd", lr=0.1,
            encoder="convnet", compile=sys.argv[1] == "compiled", out=sys.argv[1])
print("graphs", counters["stats"]["unique_graphs"])
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_encoders_train_as_they_are(tmp_path):
    """MoCo with split norms: two encoders, one of them a follower, each one graph, and statistics that move in every pass. In processes
    without type checks, which a compiler cannot see through."""
    graphs = {}
    for how in ("plain", "compiled"):
        done = subprocess.run([sys.executable, "-c", FIT, how], cwd=tmp_path, capture_output=True, text=True, check=True)
        graphs[how] = done.stdout.splitlines()[-1]
    assert graphs == {"plain": "graphs 0", "compiled": "graphs 2"}
    plain, compiled = (nearfar.load(tmp_path / how).net.state_dict() for how in graphs)
    assert plain.keys() == compiled.keys()
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_only_split_norms_change_what_the_compiler_does():
    net = ConvNet(3, 8)
    assert _options(net) == {}
    split_batch_norm(net, 2)
    assert _options(net) == {"triton.mix_order_reduction": False}
    assert "triton.mix_order_reduction" in config.get_config_copy()


def test_without_a_compiler_the_run_goes_on_and_says_so(tmp_path):
    nowhere = os.environ | {"CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    for how, environment in (("plain", os.environ), ("compiled", nowhere)):
        subprocess.run([sys.executable, "-c", FIT, how], cwd=tmp_path, check=True, env=environment)
    said = (tmp_path / "compiled" / "log.txt").read_text()
    assert said.count("encoders run uncompiled, torch.compile failed") == 1
    assert "No working C++ compiler" in said
    assert_same_tensors(stored(tmp_path / "compiled"), stored(tmp_path / "plain"))
