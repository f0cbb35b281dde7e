"""Encoders through torch.compile: the same training, and what a compiler stumbles over is kept from it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
from torch._inductor import config

import nearfar
from nearfar.encoders import ConvNet
from nearfar.heads import split_batch_norm
from nearfar.train.compiled import _options


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_encoders_train_as_they_are(tmp_path):
    """MoCo with split norms: two encoders, one of them a follower, and statistics that move in every pass. In a process without type
    checks, which a compiler cannot see through."""
    settings = {"data": "digits", "steps": 3, "batch": 32, "queue": 64, "groups": 2, "optimizer": "sgd", "lr": 0.1}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    for how in ("--compile", "--no-compile"):
        command = [sys.executable, "-m", "nearfar", "fit", "moco-v2", "--symmetric", *flags, how, "--out", tmp_path / how[2:]]
        subprocess.run(command, check=True)
    plain, compiled = (nearfar.load(tmp_path / name).net.state_dict() for name in ("no-compile", "compile"))
    assert plain.keys() == compiled.keys()
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_only_split_norms_change_what_the_compiler_does():
    net = ConvNet(3, 8)
    assert _options(net) == {}
    split_batch_norm(net, 2)
    assert _options(net) == {"triton.mix_order_reduction": False}
    assert "triton.mix_order_reduction" in config.get_config_copy()
