"""The loop's parts: schedule, optimizers, cut, divergence, collapse, hooks, precision."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from helpers import assert_same_tensors, gradients, tiny_session
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import nearfar
from nearfar.core import Card, NearfarError, Net, Plan, RandomKey, Recipe, RuntimeConfig, Similarity, TrainConfig
from nearfar.heads import mlp
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.similarity import ImageViews, handwriting_views
from nearfar.train.loader import PREFETCH_STEPS, StepDataset, iterate_batches
from nearfar.train.optimizers import LARS, initialize_momentum, make_optimizer, reset_optimizer_state
from nearfar.train.schedules import compute_learning_rate
from nearfar.train.session import TrainingSession, pick_device
from nearfar.train.training_loop import DivergenceError, Hook, train

IMAGES = (np.arange(48 * 64) * 37 % 251).astype(np.uint8).reshape(48, 8, 8)


@given(st.floats(0, 1), st.floats(0, 0.9), st.sampled_from(["cosine", "constant"]))
def test_learning_rate_stays_between_zero_and_its_peak(progress, warmup, schedule):
    assert 0 <= compute_learning_rate(progress, 2.0, schedule, warmup) <= 2.0


def test_learning_rate_known_answers():
    assert compute_learning_rate(0.05, 1.0, "cosine", 0.1) == pytest.approx(0.5)
    assert compute_learning_rate(0.1, 1.0, "cosine", 0.1) == 1.0
    assert compute_learning_rate(0.55, 1.0, "cosine", 0.1) == pytest.approx(0.5)
    assert compute_learning_rate(1.0, 1.0, "cosine", 0.1) == pytest.approx(0.0)
    assert compute_learning_rate(0.9, 3.0, "constant", 0.1) == 3.0
    assert compute_learning_rate(0.0, 3.0, "constant", 0.0) == 3.0


def test_lars_follows_its_formula():
    torch.manual_seed(0)
    w = torch.randn(3, 4, dtype=torch.double)
    p = nn.Parameter(w.clone())
    optimizer = LARS([p], lr=0.1, momentum=0.9, weight_decay=0.01, trust_coefficient=1e-3)
    velocity = torch.zeros_like(w)
    for step in range(3):
        g = torch.full_like(w, 0.5 + step)
        p.grad = g.clone()
        optimizer.step()
        d = g + 0.01 * w
        ratio = 1e-3 * math.sqrt(float((w**2).sum())) / math.sqrt(float((d**2).sum()))
        velocity = 0.9 * velocity + 0.1 * ratio * d
        w = w - velocity
        assert torch.allclose(p.detach(), w, rtol=1e-12)


def test_lars_takes_plain_steps_where_it_does_not_adapt_or_cannot():
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.ones(2)
    LARS([p], lr=0.5).step()
    assert p.tolist() == [-0.5, -0.5]
    q = nn.Parameter(torch.ones(2))
    q.grad = torch.ones(2)
    LARS([{"params": [q], "adapt": False}], lr=0.5).step()
    assert q.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars"])
@pytest.mark.parametrize(("decay", "of_vectors"), [("matrices", 0.0), ("all", 0.3)])
def test_vectors_decay_only_where_all_do(name, decay, of_vectors):
    net = Net(body=nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), scale=nn.Parameter(torch.ones(())))
    groups = make_optimizer(net, ("",), TrainConfig(optimizer=name, weight_decay=0.3, decay_params=decay)).param_groups
    found = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    vectors = dict.fromkeys(("scale", "body.0.bias", "body.1.weight", "body.1.bias"), of_vectors)
    assert {n: found[id(p)] for n, p in net.named_parameters()} == {"body.0.weight": 0.3} | vectors
    if name == "lars":
        assert {id(p): g["adapt"] for g in groups for p in g["params"]}[id(net.scale)] is False


def test_an_optimizer_owns_only_the_named_parts():
    net = Net(a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    owned = {id(p) for g in make_optimizer(net, ("b",), TrainConfig()).param_groups for p in g["params"]}
    assert owned == {id(p) for p in net.b.parameters()}


def fused_sgd(net: Net) -> torch.optim.SGD:
    """The optimizer that runs on CUDA use. It works on CPUs too."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    initialize_momentum(optimizer)
    return optimizer


def test_fused_sgd_continues_after_a_refresh_forgets_a_part():
    net = Net(encoder=nn.Linear(3, 3), classifier=nn.Linear(3, 2))
    optimizer = fused_sgd(net)
    net.classifier(net.encoder(torch.ones(4, 3))).square().sum().backward()
    optimizer.step()
    reset_optimizer_state(optimizer, net, ("classifier",))
    optimizer.step()
    momentum = {p: optimizer.state[p]["momentum_buffer"] for p in net.parameters()}
    assert all(torch.equal(momentum[p], p.grad) for p in net.classifier.parameters())
    assert not any(torch.equal(momentum[p], p.grad) for p in net.encoder.parameters())


def test_fused_sgd_accepts_a_first_gradient_in_a_later_step():
    net = Net(first=nn.Linear(3, 2), later=nn.Linear(3, 2))
    optimizer = fused_sgd(net)
    net.first(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    net.later(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    assert all(torch.equal(optimizer.state[p]["momentum_buffer"], p.grad) for p in net.later.parameters())


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars", "adagrad"])
def test_a_forgotten_part_is_trained_as_by_a_new_optimizer(name):
    nets = [Net(part=nn.Linear(3, 2)) for _ in range(2)]
    optimizers = [make_optimizer(net, ("",), TrainConfig(optimizer=name)) for net in nets]
    nets[0].part(torch.ones(4, 3)).square().sum().backward()
    optimizers[0].step()
    reset_optimizer_state(optimizers[0], nets[0], ("part",))
    nets[1].load_state_dict(nets[0].state_dict())
    for net, optimizer in zip(nets, optimizers, strict=True):
        optimizer.zero_grad()
        net.part(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
    assert_same_tensors(nets[0].state_dict(), nets[1].state_dict())


@dataclass(frozen=True)
class Alternating(Recipe):
    """Two turns on one net: the first trains `a`, the second `b`."""

    card = Card("x", "x", 2020, "image", *["x"] * 9)
    part: str = "a"

    @property
    def trains(self):
        return (self.part,)

    def similarity(self, net):
        return ImageViews((handwriting_views(8).pipelines[0],) * 2)

    def build(self, sizes, encoder):
        return Net(encoder=encoder.requires_grad_(False), a=nn.Linear(encoder.dim, 4), b=nn.Linear(4, 2))

    def embed(self, net, x, rng_key):
        return {"z": net.b(net.a(net.encoder(x["v0"])))}

    def objective(self, net, z, rng_key):
        return z["z"].square().mean()

    def phases(self):
        return (Alternating("a"), Alternating("b"))


def test_turns_own_their_parts_and_alternate():
    run = nearfar.fit(Alternating(), data=IMAGES, steps=2, batch_size=8)
    before = run.build_untrained().net.state_dict()
    after = run.net.state_dict()
    assert not torch.equal(before["a.weight"], after["a.weight"])
    assert not torch.equal(before["b.weight"], after["b.weight"])
    assert all(torch.equal(before[k], v) for k, v in after.items() if k.startswith("encoder") and "running" not in k and "num" not in k)


class Poison(Hook):
    """Makes the loss infinite or NaN from a certain step on, by spoiling a weight."""

    def __init__(self, at: int, value: float):
        self.at, self.value = at, value

    def step(self, session, values, z):
        if session.step == self.at:
            with torch.no_grad():
                session.net.head[0].weight.fill_(self.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_divergence_stops_within_one_step_and_keeps_the_last_good_checkpoint(value, tmp_path):
    with pytest.raises(DivergenceError, match=r"loss became nan at step 6.*last good checkpoint is kept.*--lr"):
        nearfar.fit("simclr", preset="tiny", steps=9, batch_size=16, save_every=2, out=tmp_path / "run", hooks=[Poison(5, value)])
    assert nearfar.load(tmp_path / "run").step == 4
    assert "loss became nan" in (tmp_path / "run" / "log.txt").read_text()


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    with pytest.raises(DivergenceError, match=r"a weight became NaN or infinite at step 4"):
        nearfar.fit("simclr", preset="tiny", steps=9, batch_size=16, save_every=2, out=tmp_path / "run", hooks=[Poison(4, math.nan)])
    assert nearfar.load(tmp_path / "run").step == 2


@dataclass(frozen=True)
class Collapsing(SimCLR):
    """Positives only: the classical way to a constant map."""

    def objective(self, net, z, rng_key):
        return (z["z0"] - z["z1"]).square().mean() + z["z0"].var(0).sum() + z["z1"].var(0).sum()


@pytest.mark.slow
def test_collapse_is_seen_while_training(caplog):
    with caplog.at_level(logging.WARNING, "nearfar"):
        run = nearfar.fit(Collapsing(norm="none"), data="digits", steps=150, batch_size=64, lr=1e-2)
    assert "is collapsing at step" in caplog.text
    assert caplog.text.count("is collapsing") == 1
    assert run.metrics[-1]["spread"] < 0.1


def test_a_healthy_run_gives_no_warning(caplog):
    with caplog.at_level(logging.WARNING, "nearfar"):
        run = nearfar.fit("simclr", preset="tiny", steps=100, batch_size=64)
    assert not caplog.text
    assert run.metrics[-1]["spread"] > 0.5


def test_hooks_see_every_step_and_never_change_the_result():
    seen = []

    class Counter(Hook):
        def start(self, session):
            seen.append("start")

        def step(self, session, values, z):
            seen.append((session.step, sorted(values), sorted(z)))

        def stop(self, session):
            seen.append("stop")

    plain = tiny_session("simclr", steps=3, batch_size=16)
    watched = tiny_session("simclr", steps=3, batch_size=16)
    train(plain)
    train(watched, [Counter()])
    assert seen == ["start", *((t, ["loss"], ["z0", "z1"]) for t in (1, 2, 3)), "stop"]
    assert_same_tensors(plain.net.state_dict(), watched.net.state_dict())


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_a_step_takes_the_learning_rate_of_its_middle(schedule):
    """By hand, with a warm-up over half of eight steps: neither the first nor the last step has a rate of zero."""
    seen = []

    class Rates(Hook):
        def step(self, session, values, z):
            seen.append((session.lr, *(group["lr"] for o in session.optimizers for group in o.param_groups)))

    train(tiny_session("simclr", steps=8, batch_size=16, lr=0.8, warmup_ratio=0.5, schedule=schedule), [Rates()])
    falling = [0.4 * (1 + math.cos(math.pi * share)) for share in (0.125, 0.375, 0.625, 0.875)]
    expected = [0.1, 0.3, 0.5, 0.7] + (falling if schedule == "cosine" else [0.8] * 4)
    assert [rates[0] for rates in seen] == pytest.approx(expected)
    assert all(len(set(rates)) == 1 < len(rates) for rates in seen), "the optimizer took the rate that is reported"


@dataclass(frozen=True)
class Noting(SimCLR):
    """Writes down the progress of each update and the first number of each refresh key, in buffers of the net."""

    def build(self, sizes, encoder):
        net = super().build(sizes, encoder)
        net.register_buffer("progress", torch.zeros(12))
        net.register_buffer("drawn", torch.zeros(3))
        return net

    def update(self, net, z, progress):
        net.progress[net.progress.count_nonzero()] = progress

    def refresh(self, net, data, encode_all, rng_key, epoch):
        net.drawn[epoch] = rng_key.uniform(torch.zeros(1)).item()
        return ()


def test_update_receives_the_progress_after_its_step():
    session = tiny_session("simclr", steps=4, batch_size=16)
    session = TrainingSession(Noting(), session.config, RuntimeConfig(), session.data, torch.device("cpu"))
    train(session)
    assert session.net.progress.tolist() == [0.25, 0.5, 0.75, 1.0] + [0.0] * 8


def test_each_epoch_refreshes_with_a_key_of_its_own():
    run = nearfar.fit(Noting(), data=IMAGES, steps=12, batch_size=8)
    drawn = run.net.drawn.tolist()
    assert len(set(drawn)) == 3
    assert drawn == [RandomKey(0)("refresh", epoch).uniform(torch.zeros(1)).item() for epoch in range(3)]


def test_only_hooks_that_started_are_stopped():
    """An error in a hook's start is told as it is, not as one of a hook that never started."""
    seen = []

    class Named(Hook):
        def __init__(self, name):
            self.name = name

        def start(self, session):
            if self.name == "second":
                raise RuntimeError("no such server")
            self.opened = self.name

        def stop(self, session):
            seen.append(self.opened)

    with pytest.raises(RuntimeError, match="no such server"):
        train(tiny_session("simclr", steps=1, batch_size=16), [Named("first"), Named("second"), Named("third")])
    assert seen == ["first"]


def test_evaluating_along_the_way_changes_nothing():
    settings = {"preset": "tiny", "steps": 6, "batch_size": 32}
    plain, watched = nearfar.fit("byol", **settings), nearfar.fit("byol", eval_every=3, **settings)
    assert_same_tensors(plain.net.state_dict(), watched.net.state_dict())
    assert [m["step"] for m in watched.metrics if "knn" in m] == [3, 6]


def test_the_callers_generator_is_left_alone():
    before = torch.get_rng_state()
    nearfar.fit("simclr", preset="tiny", steps=2, batch_size=16)
    assert torch.equal(torch.get_rng_state(), before)


def test_bf16_embeds_under_autocast_and_losses_see_fp32():
    kinds = []

    class Kinds(Hook):
        def step(self, session, values, z):
            kinds.append({v.dtype for v in z.values()})

    train(tiny_session("simclr", steps=2, batch_size=16, precision="bf16"), [Kinds()])
    assert kinds == [{torch.float32}] * 2
    exact = gradients(tiny_session("simclr", exact=True, batch_size=32))
    rough = gradients(tiny_session("simclr", exact=True, batch_size=32, precision="bf16"))
    a, b = (torch.cat([g.flatten() for g in found.values()]) for found in (exact, rough))
    assert not torch.equal(a, b)
    assert torch.cosine_similarity(a, b, dim=0) > 0.98


def test_bf16_chunks_equal_the_whole():
    """The trap: one autocast region over both passes would reuse weights that were cast without a graph."""
    whole = gradients(tiny_session("simclr", exact=True, batch_size=16, precision="bf16"))
    parts = gradients(tiny_session("simclr", exact=True, batch_size=16, precision="bf16"), chunk_size=5)
    a, b = (torch.cat([g.flatten() for g in found.values()]) for found in (whole, parts))
    assert (a - b).norm() < 0.05 * a.norm()


def test_clip_limits_the_whole_gradient():
    run = nearfar.fit("simclr", preset="tiny", steps=3, batch_size=16, grad_clip=1e-3, log_every=1)
    assert all(m["gradient"] > 1e-3 for m in run.metrics if "gradient" in m)
    assert any("gradient" in m for m in run.metrics)


def test_init_starts_from_another_runs_encoder(tmp_path):
    donor = nearfar.fit("simclr", preset="tiny", steps=3, batch_size=16, encoder="convnet-gn", out=tmp_path / "donor")
    run = nearfar.fit("moco", preset="tiny", steps=1, batch_size=16, init_from=str(tmp_path / "donor"), lr=1e-12, out=tmp_path / "run")
    assert run.config.encoder == "convnet-gn"
    images = IMAGES[:4]
    assert torch.allclose(run.encode(images), donor.encode(images), atol=1e-5)
    assert not torch.allclose(run.build_untrained().encode(images), donor.encode(images), atol=1e-2)


def test_initialisation_depends_on_the_seed_alone():
    torch.manual_seed(1)
    a = tiny_session("moco").net.state_dict()
    torch.manual_seed(2)
    b = tiny_session("moco").net.state_dict()
    c = tiny_session("moco", seed=1).net.state_dict()
    assert_same_tensors(a, b)
    assert not torch.equal(a["queue.rows"], c["queue.rows"])


def test_heads_have_the_layers_that_are_asked_for():
    kinds = [type(m).__name__ for m in mlp(8, 16, 16, 4, norm="batch", last_norm=True)]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]
    assert [type(m).__name__ for m in mlp(8, 4)] == ["Linear"]
    with RandomKey(0).fork_torch_rng():
        head = mlp(8, 16, 4, norm="layer")
    rows = torch.linspace(-1, 1, 40).view(5, 8)
    assert torch.allclose(head(rows)[2:3], head(rows[2:3]), atol=1e-6), "layer norm treats rows alone"


class Reading(Similarity):
    """Notes which rows were read, and by which thread."""

    def __init__(self, ahead: bool, broken: int | None = None):
        self.prefetches, self.broken, self.read_by = ahead, broken, []  # type: ignore[misc]

    def read(self, data, rows, rng_key):
        self.read_by.append(threading.current_thread().name)
        if len(self.read_by) - 1 == self.broken:
            raise NearfarError("row 7 is damaged")
        return {"x": torch.as_tensor(data[rows.ids]), "u": torch.as_tensor(rng_key.uniform(rows.slots))}

    def view(self, raw, rows, rng_key):
        return raw


def steps_of(similarity: Reading) -> StepDataset:
    return StepDataset(np.arange(40), similarity, Plan(40, 8, RandomKey(0)), RandomKey(1), 3)


def test_what_a_thread_reads_ahead_is_what_would_be_read():
    here, beside = Reading(False), Reading(True)
    plain, ahead = (list(iterate_batches(steps_of(s), 2, 9, 0, torch.device("cpu"))) for s in (here, beside))
    assert [t for t, _, _ in ahead] == list(range(2, 9))
    for (_, _, a), (_, _, b) in zip(plain, ahead, strict=True):
        assert sorted(len(raw["x"]) for raw in a) == [2, 3, 3]
        assert all(torch.equal(x[k], y[k]) for x, y in zip(a, b, strict=True) for k in ("x", "u"))
    assert set(here.read_by) == {"MainThread"}
    assert all(name.startswith("reading") for name in beside.read_by)


def test_a_thread_is_never_far_ahead_and_hands_its_errors_over():
    similarity = Reading(True, broken=12)  # three parts a step: the fifth step cannot be read
    found = iterate_batches(steps_of(similarity), 0, 30, 0, torch.device("cpu"))
    for t in range(4):
        assert next(found)[0] == t
        assert len(similarity.read_by) <= 3 * (t + 1 + PREFETCH_STEPS)
    with pytest.raises(NearfarError, match="row 7 is damaged"):
        next(found)


def test_a_device_may_be_numbered():
    assert pick_device("cpu:0") == torch.device("cpu:0")
