"""`nearfar check`: methods that keep their promises, and one for each way to break one."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import nearfar
from nearfar import check
from nearfar.recipes.vision.simclr import SimCLR

HEAD = """
from dataclasses import dataclass, replace
import numpy as np
import torch
from torch import nn
from nearfar import Net, TrainConfig
from nearfar.recipes.vision.simclr import SimCLR

@dataclass(frozen=True)
class Own(SimCLR):
    card = replace(SimCLR.card, title="Own")
"""
TINY = '\ntiny = Own(), TrainConfig(data="digits", encoder="convnet")\n'
BROKEN = {
    "embed and objective only look": """
    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.seen = nn.Parameter(torch.zeros(()), requires_grad=False)
        return net
    def objective(self, net, z, key):
        with torch.no_grad():
            net.seen += 1
        return super().objective(net, z, key)
""",
    "a seed is a run": """
    def objective(self, net, z, key):
        return super().objective(net, z, key) * float(np.random.default_rng().uniform(0.5, 1.5))
""",
    "resuming is exact": """
    count = [0]
    def update(self, net, z, progress):
        if progress == 0 or len(self.count) == 1:
            self.count.append(0)
        self.count[-1] += 1
        with torch.no_grad():
            net.head[0].weight.mul_(1 - 0.01 * (self.count[-1] if progress > 0 else 1))
""",
    "gradients reach every parameter": """
    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.spare = nn.Linear(3, 3)
        return net
""",
    "chunks are the whole batch": """
    def embed(self, net, x, key):
        z = super().embed(net, x, key)
        return {name: value - value.mean(0) for name, value in z.items()}
""",
}


def own(folder: Path, body: str) -> str:
    path = folder / "own.py"
    path.write_text(HEAD + (body or "    pass\n") + TINY)
    return str(path)


def kept(found) -> dict[str, bool | None]:
    return {p.name: p.kept for p in found.promises}


@pytest.mark.parametrize("name", ["moco", "dgi", "word2vec-cbow"])
def test_methods_of_all_kinds_keep_their_promises(name):
    found = check(name)
    assert not found.broken
    assert kept(found)["resuming is exact"] is True
    if name == "dgi":
        assert kept(found)["chunks are the whole batch"] is None


def test_a_file_a_class_and_an_instance_are_asked_alike(tmp_path):
    path = own(tmp_path, "")
    images = torch.arange(60 * 64).view(60, 1, 8, 8).remainder(251).to(torch.uint8).numpy()
    for recipe, data in ((path, None), (SimCLR, "digits"), (SimCLR(temperature=0.2), images)):
        found = check(recipe, data, encoder="convnet", steps=4)
        assert set(kept(found).values()) == {True}, found.broken


def test_dropout_is_not_held_against_chunks_nor_a_file_without_tiny_settings_against_anything(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        HEAD
        + """
    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.head = nn.Sequential(nn.Dropout(0.2), net.head)
        return net
"""
    )
    found = check(str(path), "digits", encoder="convnet", steps=4)
    assert not found.broken
    assert kept(found)["chunks are the whole batch"] is None


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_promise_is_named(promise, tmp_path):
    found = check(own(tmp_path, BROKEN[promise]))
    assert kept(found)[promise] is False
    unsteady = {"embed and objective only look"} if promise == "a seed is a run" else set()  # the same batch gives another loss, too
    assert {p.name for p in found.broken} == {promise} | unsteady
    if unsteady:
        assert kept(found)["resuming is exact"] is None


def test_what_is_wrong_is_said_with_the_names_of_the_parts(tmp_path):
    found = {p.name: p.found for p in check(own(tmp_path, BROKEN["gradients reach every parameter"])).promises}
    assert found["gradients reach every parameter"].startswith("spare.bias, spare.weight never changed")


def test_batch_statistics_that_cannot_be_taken_out_are_not_held_against_chunks(tmp_path):
    body = """
    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.head = nn.Sequential(nn.BatchNorm1d(encoder.dim), net.head)
        return net
"""
    found = next(p for p in check(own(tmp_path, body)).promises if p.name == "chunks are the whole batch")
    assert found.kept is None
    assert "BatchNorm1d" in found.found


def test_without_data_or_steps_there_is_one_clear_error():
    with pytest.raises(nearfar.UsageError, match="closed form"):
        check("bert-whitening")

    @dataclasses.dataclass(frozen=True)
    class Bare(SimCLR):
        """No file of its own, no tiny settings."""

        card = dataclasses.replace(SimCLR.card, title="Bare")

    with pytest.raises(nearfar.UsageError, match="--data DATA"):
        check(Bare)


@pytest.mark.slow
def test_the_command_says_it_in_a_table_and_by_its_exit_code(tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "nearfar", "check", *words], capture_output=True, text=True, cwd=tmp_path, check=False)

    good = run(own(tmp_path, ""), "--json")
    assert good.returncode == 0, good.stderr
    assert [p["kept"] for p in json.loads(good.stdout)["promises"]] == [True] * 6
    bad = run(own(tmp_path, BROKEN["chunks are the whole batch"]))
    assert bad.returncode == 1
    assert "BROKEN" in bad.stdout
    assert "`embed` mixes rows" in bad.stdout
    assert "own.py breaks 1 of 6 promises" in bad.stderr
