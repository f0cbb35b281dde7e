"""Properties that every recipe has. The tests walk over all files in nearfar/recipes.

They use micro presets (tests/micro.py). The tests of a recipe together cost at most three seconds of CPU time.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from collections import Counter, defaultdict

import pytest
import torch
from cpu_time import measure_cpu_seconds, measure_slowness
from helpers import assert_same_tensors, gradients, largest_relative_error, stored, tiny_data, tiny_session
from micro import micro_data, micro_preset, micro_samples, micro_session, micro_settings

import nearfar
from nearfar import recipes
from nearfar.core import Ema, RandomKey, RuntimeConfig, TrainConfig
from nearfar.core.configs import get_field_names
from nearfar.train.loader import StepDataset
from nearfar.train.step import freeze_batch_norm_statistics
from nearfar.train.training_loop import Hook, train

every_recipe = pytest.mark.parametrize("name", recipes.list_methods())
LEARNING = [name for name in recipes.list_methods() if recipes.load_method(name).recipe_class.trains]
every_learning_recipe = pytest.mark.parametrize("name", LEARNING)
"""All but those that are fitted in closed form and have no steps."""

CPU_SECONDS = 3.0
"""Limit of the CPU time of all tests of a recipe on the reference machine. Most recipes take less than half of it."""
spent: dict[str, Counter[str]] = defaultdict(Counter)
"""CPU seconds of each test, by recipe."""


slowness = functools.cache(measure_slowness)


@functools.cache
def open_once(name: str) -> None:
    """Import and open everything that recipes share, for which the tests of a recipe do not pay."""
    micro_session(name)
    tiny_data(name)


@pytest.fixture(autouse=True)
def count_cpu_time(request):
    """Add the CPU time of each test to the account of its recipe."""
    name = request.node.callspec.params["name"]
    open_once(name)
    start = measure_cpu_seconds()
    yield
    spent[name][request.node.originalname] += measure_cpu_seconds() - start


def fit(name: str, **settings) -> nearfar.Model:
    """Train the micro preset of a recipe."""
    if name not in LEARNING:
        settings.pop("steps", None)
    return nearfar.fit(**micro_settings(name, **settings))


class StopAt(Hook):
    """Ends a run as a crash would, after the step's metrics were written and before its checkpoint."""

    def __init__(self, at: int):
        self.at = at

    def step(self, session, values, z):
        if session.step == self.at:
            raise RuntimeError("stopped on purpose")


class Losses(Hook):
    def __init__(self):
        self.values = []

    def step(self, session, values, z):
        self.values.append(float(values["loss"]))


def metrics(run) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "time"} for line in lines]


def embedded(session, step=0):
    """One batch through embed and objective."""
    similarity = session.similarity()
    steps = StepDataset(session.data, similarity, session.plan, session.rng_key("read"), None)
    (rows,), (raw,) = steps.get_row_chunks(step), steps[step]
    x = similarity.view(raw, rows, session.rng_key("view"))
    x |= {"id": torch.as_tensor(rows.ids), "slot": torch.as_tensor(rows.slots)}
    with RandomKey(0)("dropout").fork_torch_rng():
        z = session.recipe.embed(session.net, x, session.rng_key("embed", step))
    loss = session.recipe.objective(session.net, z, session.rng_key("objective", step))
    return z, loss["loss"] if isinstance(loss, dict) else loss


@every_learning_recipe
def test_loss_is_finite_and_falls(name):
    # All rows in every batch: the classes of a batch and hard negatives would hide the fall of a small batch.
    changes = {"batch_size": None} if recipes.load_method(name).recipe_class.rowwise else {}
    if hasattr(micro_preset(name)[0], "cluster_every"):
        changes["cluster_every"] = 16  # every new clustering starts with an untrained classifier
    losses = Losses()
    train(micro_session(name, steps=16, **changes), [losses])
    assert len(losses.values) == 16
    assert all(map(math.isfinite, losses.values))
    # From the second step on: a queue of random unit vectors is easy, and the loss rises when real keys come in.
    assert sum(losses.values[-4:]) < sum(losses.values[1:5])


@every_learning_recipe
def test_tiny_preset_takes_a_step(name):
    losses = Losses()
    train(tiny_session(name, steps=1), [losses])
    assert len(losses.values) == 1
    assert math.isfinite(losses.values[0])


@every_learning_recipe
def test_resume_is_bit_exact(name, tmp_path):
    # An epoch has four steps: the run stops in its second epoch and continues after step 5, in the middle of that epoch.
    how = {"steps": 7, "save_every": 5, "log_every": 1}
    fit(name, out=tmp_path / "whole", **how)
    with pytest.raises(RuntimeError, match="on purpose"):
        fit(name, out=tmp_path / "broken", hooks=[StopAt(6)], **how)
    torch.rand(7)  # the history of torch's generator must not matter
    nearfar.resume(tmp_path / "broken", micro_data(name))
    assert_same_tensors(stored(tmp_path / "whole"), stored(tmp_path / "broken"))
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "broken")


@every_learning_recipe
def test_workers_do_not_matter(name):
    runs = [micro_session(name, runtime=RuntimeConfig(num_workers=w), steps=2) for w in (0, 2)]
    for session in runs:
        train(session)
    assert_same_tensors(runs[0].net.state_dict(), runs[1].net.state_dict())


@every_learning_recipe
def test_chunks_give_the_gradient_of_the_whole_batch(name):
    session = micro_session(name, exact=True)
    if not session.recipe.rowwise and session.config.batch_size > 1:
        with pytest.raises(nearfar.NearfarError, match="without --chunk-size"):
            gradients(session, chunk_size=3)
        return
    whole = gradients(session)
    for chunk in (3, 8, 1):
        assert largest_relative_error(whole, gradients(session, chunk_size=chunk)) < 1e-5


@every_recipe
def test_embed_and_objective_change_no_state(name):
    session = micro_session(name)
    session.net.train()
    before = {k: v.clone() for k, v in session.net.state_dict().items()}
    with freeze_batch_norm_statistics(session.net):
        z, loss = embedded(session)
        again, loss_again = embedded(session)
    assert_same_tensors(before, session.net.state_dict())
    assert_same_tensors({k: v.detach() for k, v in z.items()}, {k: v.detach() for k, v in again.items()})
    assert torch.equal(loss, loss_again)


@every_learning_recipe
def test_gradient_reaches_every_trainable_parameter_and_no_follower(name):
    session = micro_session(name)
    found = gradients(session)
    trainable = {n for n, p in session.net.named_parameters() if p.requires_grad}
    assert {k.split(".", 1)[1] for k, g in found.items() if g.abs().sum() > 0} == trainable
    followers = [p for m in session.net.modules() if isinstance(m, Ema) for p in m.parameters()]
    assert not any(p.requires_grad or p.grad is not None for p in followers)


@every_recipe
def test_saved_and_loaded_encodes_the_same(name, tmp_path):
    run = fit(name, out=tmp_path / "run", steps=2)
    samples = micro_samples(name)
    loaded = nearfar.load(tmp_path / "run")
    assert torch.equal(run.encode(samples), loaded.encode(samples))
    assert not torch.equal(run.encode(samples), loaded.build_untrained().encode(samples))
    assert loaded.step == run.step == (2 if name in LEARNING else 0)


@every_recipe
def test_a_config_repeats_a_run_exactly(name, tmp_path):
    fit(name, seed=5, out=tmp_path / "a", steps=2)
    data, config_file = micro_data(name), tmp_path / "a" / "config.json"
    nearfar.fit(data=data, config_file=config_file, out=tmp_path / "b")
    assert_same_tensors(stored(tmp_path / "a"), stored(tmp_path / "b"))
    nearfar.fit(data=data, config_file=config_file, seed=6, out=tmp_path / "c")
    with pytest.raises(AssertionError, match="differ"):
        assert_same_tensors(stored(tmp_path / "a"), stored(tmp_path / "c"))


@every_recipe
def test_card_settings_and_text_are_complete(name):
    method = recipes.load_method(name)
    card = method.recipe_class.card
    assert all(getattr(card, f.name) for f in dataclasses.fields(card))
    text = inspect.getmodule(method.recipe_class).__doc__
    for part in ("Claim:", "$$", "Shapes:", "Requirements:", "Relations:", "Reference:"):
        assert part in text, f"{method.source_path} does not say {part}"
    assert card.paper.removeprefix("arXiv:") in text
    assert isinstance(method.paper[0], method.recipe_class)
    assert isinstance(method.tiny[0], method.recipe_class)
    assert method.tiny[1].data
    assert all(isinstance(number, float) and source for number, source in method.reported.values())
    assert not set(get_field_names(method.recipe_class)) & set(get_field_names(TrainConfig) + get_field_names(RuntimeConfig)), (
        "a flag would have two meanings"
    )
    assert method.source_path.read_text().count("\n") <= 150


@every_recipe
def test_contract_takes_at_most_three_cpu_seconds(name):
    """Runs last, after the other tests of the recipe in this process."""
    limit, costs = CPU_SECONDS * slowness(), spent[name]
    slowest = ", ".join(f"{test} {seconds:.2f}" for test, seconds in costs.most_common(3))
    assert costs.total() <= limit, f"the tests of {name} took {costs.total():.2f} CPU seconds, the limit is {limit:.2f}; slowest: {slowest}"
