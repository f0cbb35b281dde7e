"""Several ranks on the command line: real processes, really killed; and what they are made of, in one group of three."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from helpers import largest_relative_error, stored, tiny_session
from micro import micro_session, micro_splits
from torch import Tensor, nn

import nearfar
from nearfar import recipes
from nearfar.cli.main import main
from nearfar.core import NearfarError, Net, Recipe, UsageError
from nearfar.core.ranks import is_set_on_any_rank
from nearfar.data import Splits
from nearfar.train.checkpoint import find_newest_checkpoint
from nearfar.train.gradient_buckets import GradientBuckets
from nearfar.train.optimizers import make_optimizer
from nearfar.train.process_group import check_ranks_agree
from nearfar.train.session import pick_device
from nearfar.train.step import GradStep, freeze_batch_norm_statistics
from nearfar.train.sync_batch_norm import CPUSyncBatchNorm, synchronize_batch_norm
from nearfar.train.training_loop import Hook, train

pytestmark = pytest.mark.slow
RECIPE = '''
import torch
from dataclasses import dataclass
from torch import nn
from nearfar.core import Net
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.scores import rowmap

@dataclass(frozen=True)
class Watched(SimCLR):
    """SimCLR that counts the rows of its loss which this rank computes, with a parameter that nothing uses."""
    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.idle = nn.Parameter(torch.ones(3, 3))
        return net
    def objective(self, net, z, key):
        seen = []
        def rows(a, b):
            seen.append(len(a))
            return (a @ b.T).logsumexp(1)
        a, b = (nn.functional.normalize(z[k]) for k in ("z0", "z1"))
        loss = (rowmap(rows, (a,), (b,), 16) - (a * b).sum(1)).mean()
        return {"loss": loss, "rows": torch.tensor(float(sum(seen)))}
'''
SETTINGS = ["--data", "digits", "--encoder", "convnet-gn", "--norm", "layer", "--batch-size", 32, "--chunk-size", 16]
"""Nets without batch statistics. One rank embeds 16 rows at a time, and computes as many of the loss, as each of two does: sums are
rounded alike, and AdamW has no small differences to make large ones of."""


def torchrun(*args: str | Path | float) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nearfar", "fit"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, seconds: float = 240) -> str:
    """What it said on stderr; it must have ended well and said nothing on stdout."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    assert out == ""
    return err


def alone(*args: str | Path | float) -> None:
    assert main(["fit", *map(str, args)]) == 0


def until_step(run: Path, step: int, process: subprocess.Popen) -> None:
    limit = time.monotonic() + 240
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= step):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit
        time.sleep(0.005)


def pid_of_rank(number: int, torchrun_pid: int) -> int:
    for pid in map(int, Path(f"/proc/{torchrun_pid}/task/{torchrun_pid}/children").read_text().split()):
        if f"\0RANK={number}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return pid
    raise AssertionError(f"no rank {number}")


def weights(run: Path) -> dict[str, Tensor]:
    return {k: v for k, v in stored(run).items() if k.startswith("net")}


@pytest.fixture(scope="module")
def own_recipe(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "watched.py"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def whole(own_recipe) -> Path:
    """One rank, never stopped."""
    run = own_recipe.parent / "whole"
    alone(own_recipe, *SETTINGS, "--steps", 30, "--log-every", 1, "--save-every", 20, "--out", run)
    return run


def test_killed_on_two_ranks_continued_on_one_then_on_two(own_recipe, whole, tmp_path):
    run = tmp_path / "run"
    process = torchrun(own_recipe, *SETTINGS, "--steps", 30, "--log-every", 1, "--save-every", 2, "--out", run)
    until_step(run, 8, process)
    killed = time.monotonic()
    os.kill(pid_of_rank(1, process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert time.monotonic() - killed < 15
    assert process.returncode == 1
    ours = [line for line in err.splitlines() if line.startswith("nearfar: ")]
    assert len(ours) == 1, err
    assert "another rank has ended" in ours[0]
    assert f"nearfar fit {own_recipe} --resume {run}" in ours[0]
    assert "another rank has ended" in (run / "log.txt").read_text()
    found = find_newest_checkpoint(run / "checkpoints")
    assert found is not None
    assert 6 <= found.step < 30

    class StopAt(Hook):
        def step(self, session, values, z):
            session.interrupted = session.step == found.step + 3

    with pytest.raises(KeyboardInterrupt):
        nearfar.resume(run, recipe=own_recipe, hooks=[StopAt()])
    err = finish(torchrun(own_recipe, "--resume", run))
    assert err.count("2 ranks") == err.count("30 steps done") == 1, "one rank speaks"
    assert largest_relative_error(weights(whole), weights(run)) < 1e-6

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    by_step = {line["step"]: line for line in lines if "loss" in line}
    assert list(by_step) == list(range(1, 31))
    assert [by_step[s]["rows"] for s in (1, found.step + 3, 30)] == [16, 32, 16], "each rank computes its share of the loss"
    idle = weights(run)["net.safetensors:idle"]
    assert torch.equal(idle, torch.ones(3, 3)), "what has no gradient is not decayed either"


def test_a_signal_to_torchrun_saves_once(tmp_path):
    run = tmp_path / "run"
    settings = ["--tiny", "--batch-size", 32, "--steps", 100000, "--save-every", 90000, "--log-every", 1]
    process = torchrun("simclr", *settings, "--num-workers", 1, "--out", run)  # with batch normalization
    until_step(run, 3, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    ours = [line for line in err.splitlines() if line.startswith("nearfar: ")]
    assert ours == [f"nearfar: interrupted: `nearfar fit --resume {run}` resumes from here"]
    (saved,) = (run / "checkpoints").iterdir()
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert saved.name == f"step-{last:09d}"
    assert find_newest_checkpoint(run / "checkpoints") is not None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "0"}, "RANK but not WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE but not RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK=2, WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "WORLD_SIZE=two"),
    ],
)
def test_an_environment_that_makes_no_sense(environment, expected, monkeypatch, capsys, tmp_path):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["fit", "simclr", "--tiny", "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert "torchrun" in err
    assert not (tmp_path / "run").exists()


def test_commands_of_one_process_refuse_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["eval", "run"]) == 2
    assert "without torchrun" in capsys.readouterr().err


# What follows runs in one group of three ranks, which share 7 rows unevenly.

KINDS = {name: kind for name in recipes.list_methods() if (kind := recipes.load_method(name).recipe_class).trains}
REMEMBERING = [n for n, kind in KINDS.items() if kind.rowwise and (kind.update, kind.refresh) != (Recipe.update, Recipe.refresh)]
"""Recipes with state besides weights; the gradients of all recipes are compared in test_ranks.py."""
NORMALISING = ["simclr", "byol"]
STEPS = 3


def trained(name: str, exact: bool, splits: Splits | None = None) -> dict[str, Tensor]:
    """Train some steps in double precision, where nothing is lost that an optimizer could magnify, and return the weights."""
    session = micro_session(name, exact=exact, splits=splits, batch_size=7, steps=STEPS)
    session.net.double()
    session.optimizers = [make_optimizer(session.net, turn.trains, session.config) for turn in session.phases]
    session.grad_steps = [GradStep(turn, session.net, session.rng_key) for turn in session.phases]
    train(session)
    return {k: v.clone() for k, v in session.net.state_dict().items()}


def normalised(dtype: torch.dtype, momentum: float | None) -> dict[str, Tensor]:
    """Outputs, gradients and running statistics of two batch norms; the ranks hold 2, 2 and 3 of the 7 rows."""
    g = torch.Generator().manual_seed(1)
    x, slope = torch.randn(7, 3, 4, 5, generator=g).to(dtype) * 3 + 2, torch.randn(7, 6, generator=g).to(dtype)
    net = nn.Sequential(
        nn.BatchNorm2d(3, momentum=momentum), nn.Tanh(), nn.Flatten(), nn.Linear(60, 6, bias=False), nn.BatchNorm1d(6, affine=False)
    ).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    own = slice(rank * 7 // world, (rank + 1) * 7 // world)
    if world > 1:
        synchronize_batch_norm(net, torch.device("cpu"))
    buckets = GradientBuckets(list(net.parameters()), 100) if world > 1 else None
    rows = x[own].clone().requires_grad_()
    net(rows.detach() + 1)
    with freeze_batch_norm_statistics(net):
        net(rows.detach() * 9)
    y = net(rows)
    if buckets is None:
        y.backward(slope[own])
    else:
        with buckets.reduce_gradients():
            y.backward(slope[own])
    assert rows.grad is not None
    found = {"y": y.detach(), "dx": rows.grad, **net.state_dict(), "evaluated": net.eval()(rows).detach()}
    return found | {f"d{n}": p.grad for n, p in net.named_parameters() if p.grad is not None}


def summed(rank: int) -> list:
    """Gradients of parameters in three buckets: used by all, by one rank only, by none, and of another dtype."""
    params = [
        nn.Parameter(torch.ones(4)),
        nn.Parameter(torch.ones(2, 3)),
        nn.Parameter(torch.ones(5)),
        nn.Parameter(torch.ones(2).double()),
    ]
    buckets = GradientBuckets(params, 50)
    for _ in range(2):
        for p in params:
            p.grad = None
        loss = (rank + 1.0) * params[0].sum() + params[3].sum()
        if rank == 2:
            loss = loss + 5 * params[1].sum()
        with buckets.reduce_gradients():
            loss.backward()
        (2 * params[0].sum()).backward()  # outside: this rank's own affair
    return [len(buckets.buckets), *(None if p.grad is None else p.grad.clone() for p in params)]


def ahead() -> int:
    """How many buckets have left when backward comes to the first layer."""
    first, last = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    buckets, left = GradientBuckets([first, last], 12), []
    hidden = first * 2
    hidden.register_hook(lambda _: left.append(len(buckets.sent)))
    with buckets.reduce_gradients():
        (hidden * last).sum().backward()
    return left[0]


def mistakes(rank: int, out: str) -> dict[str, str]:
    class OneRank(recipes.load_method("simclr").recipe_class):
        rowwise = False

    found = {}
    tried = {
        "batch": lambda: tiny_session("simclr", batch_size=2),
        "rowwise": lambda: nearfar.fit(OneRank(), "digits", batch_size=2, steps=1),
        "cuda": lambda: pick_device("cuda"),
        "cuda:1": lambda: pick_device("cuda:1"),
        "settings": lambda: nearfar.fit("simclr", "digits", seed=int(rank == 1), out=out),
        "weights": lambda: check_ranks_agree(Net(w=torch.full((2,), float(rank == 1))), settings="same"),
    }
    for name, attempt in tried.items():
        try:
            attempt()
        except NearfarError as e:
            found[name] = f"{type(e) is UsageError} {e}"
    return found


def walk(rank: int, folder: str, data: dict[str, Splits]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
    found = {
        "weights": {name: trained(name, exact=True, splits=data[name]) for name in REMEMBERING},
        "with norms": {name: trained(name, exact=False, splits=data[name]) for name in NORMALISING},
        "normalised": [normalised(dtype, m) for dtype in (torch.float32, torch.float64) for m in (0.1, None)],
        "summed": summed(rank),
        "ahead": ahead(),
        "mistakes": mistakes(rank, f"{folder}/run"),
        "written": os.path.exists(f"{folder}/run"),
        "any": [is_set_on_any_rank(rank == 1), is_set_on_any_rank(False)],
    }
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    data = {name: micro_splits(name) for name in (*REMEMBERING, *NORMALISING)}  # opened once, not by each rank
    mp.spawn(walk, args=(str(folder), data), nprocs=3)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(3)]


@pytest.mark.parametrize("name", REMEMBERING)
def test_three_ranks_train_as_one(ranks, name):
    one = trained(name, exact=True)
    for rank in ranks:
        assert largest_relative_error(one, rank["weights"][name]) < 1e-7


@pytest.mark.parametrize("name", NORMALISING)
def test_three_ranks_train_as_one_with_batch_normalisation(ranks, name):
    one = trained(name, exact=False)
    assert any("running_var" in k for k in one)
    for rank in ranks:
        assert largest_relative_error(one, rank["with norms"][name]) < 1e-7


@pytest.mark.parametrize("case", range(4))
def test_batch_norm_over_ranks_is_that_of_all_rows(ranks, case):
    dtype, momentum = [(d, m) for d in (torch.float32, torch.float64) for m in (0.1, None)][case]
    one, tolerance = normalised(dtype, momentum), 1e-5 if dtype == torch.float32 else 1e-12
    together = [rank["normalised"][case] for rank in ranks]
    for name, expected in one.items():
        of_rows = name in ("y", "dx", "evaluated")
        found = [torch.cat([t[name] for t in together])] if of_rows else [t[name] for t in together]
        for value in found:
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_buckets_sum_what_there_is(ranks):
    for rank, found in enumerate(r["summed"] for r in ranks):
        count, everywhere, once, never, double = found
        assert count == 3
        assert everywhere.tolist() == [1.0 + 2.0 + 3.0 + 2.0] * 4, rank
        assert once.tolist() == [[5.0] * 3] * 2
        assert never is None
        assert double.tolist() == [3.0, 3.0]
    assert [r["ahead"] for r in ranks] == [1, 1, 1], "the last layer's gradient travels while the first layer's is made"


def test_mistakes_are_named_on_every_rank(ranks):
    for found in (r["mistakes"] for r in ranks):
        assert found["batch"] == "True --batch-size 2 is too small for 3 ranks: each needs at least one row"
        assert "True OneRank embeds all rows at once: it runs on one rank" in found["rowwise"]
        assert "CUDA devices for" in found["cuda"]
        assert "use --device cuda" in found["cuda:1"]
        assert "rank 1 of 3 differs from the others in its settings" in found["settings"]
        assert "rank 1 of 3 differs from the others in its weights" in found["weights"]
    assert not any(r["written"] for r in ranks), "ranks agree before anything is written"
    assert [r["any"] for r in ranks] == [[True, False]] * 3


def test_one_rank_is_left_alone():
    session = tiny_session("simclr", batch_size=13, steps=2)
    before = copy.deepcopy(session.net.state_dict())
    train(session)
    assert "_buckets" not in vars(session.grad_steps[0]), "no hooks, no messages"
    assert not any(isinstance(m, CPUSyncBatchNorm) for m in session.net.modules())
    assert any(not torch.equal(before[k], v) for k, v in session.net.state_dict().items())
