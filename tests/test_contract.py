"""What every recipe promises; walked over all files in nearfar/recipes."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pytest
import torch
from helpers import assert_same_tensors, batch_for, gradients, largest_relative_error, samples_for, stored, tiny_session

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


def settings(name: str, steps: int) -> dict:
    return {"preset": "tiny", "batch_size": batch_for(name, 32)} | ({"steps": steps} if name in LEARNING else {})


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
    losses = Losses()
    train(tiny_session(name, steps=30, batch_size=64), [losses])
    assert len(losses.values) == 30
    assert all(torch.isfinite(torch.tensor(losses.values)))
    # from a third on: a queue of random unit vectors is easy at first, and the loss rises while real keys come in
    assert sum(losses.values[-5:]) < sum(losses.values[10:15])


@every_learning_recipe
def test_resume_is_bit_exact(name, tmp_path):
    how = settings(name, 9) | {"save_every": 2, "log_every": 1}
    nearfar.fit(name, out=tmp_path / "whole", **how)
    with pytest.raises(RuntimeError, match="on purpose"):
        nearfar.fit(name, out=tmp_path / "broken", hooks=[StopAt(5)], **how)
    torch.rand(7)  # the history of torch's generator must not matter
    with pytest.raises(RuntimeError, match="on purpose"):
        nearfar.resume(tmp_path / "broken", hooks=[StopAt(7)])
    nearfar.resume(tmp_path / "broken")
    assert_same_tensors(stored(tmp_path / "whole"), stored(tmp_path / "broken"))
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "broken")


@every_learning_recipe
def test_workers_do_not_matter(name):
    runs = [tiny_session(name, runtime=RuntimeConfig(num_workers=w), steps=3, batch_size=32) for w in (0, 2)]
    for session in runs:
        train(session)
    assert_same_tensors(runs[0].net.state_dict(), runs[1].net.state_dict())


@every_learning_recipe
def test_chunks_give_the_gradient_of_the_whole_batch(name):
    if not recipes.load_method(name).recipe_class.rowwise and batch_for(name, 20) > 1:
        with pytest.raises(nearfar.NearfarError, match="without --chunk-size"):
            gradients(tiny_session(name, exact=True, batch_size=20), chunk_size=7)
        return
    whole = gradients(tiny_session(name, exact=True, batch_size=20))
    for chunk in (7, 20, 1):
        assert largest_relative_error(whole, gradients(tiny_session(name, exact=True, batch_size=20), chunk_size=chunk)) < 1e-5


@every_recipe
def test_embed_and_objective_change_no_state(name):
    session = tiny_session(name, batch_size=16)
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
    session = tiny_session(name, batch_size=32)
    found = gradients(session)
    trainable = {n for n, p in session.net.named_parameters() if p.requires_grad}
    assert {k.split(".", 1)[1] for k, g in found.items() if g.abs().sum() > 0} == trainable
    followers = [p for m in session.net.modules() if isinstance(m, Ema) for p in m.parameters()]
    assert not any(p.requires_grad or p.grad is not None for p in followers)


@every_recipe
def test_saved_and_loaded_encodes_the_same(name, tmp_path):
    run = nearfar.fit(name, out=tmp_path / "run", **settings(name, 2))
    samples = samples_for(run.recipe)
    loaded = nearfar.load(tmp_path / "run")
    assert torch.equal(run.encode(samples), loaded.encode(samples))
    assert not torch.equal(run.encode(samples), loaded.build_untrained().encode(samples))
    assert loaded.step == run.step == settings(name, 2).get("steps", 0)


@every_recipe
def test_a_config_repeats_a_run_exactly(name, tmp_path):
    nearfar.fit(name, seed=5, out=tmp_path / "a", **settings(name, 3))
    nearfar.fit(config_file=tmp_path / "a" / "config.json", out=tmp_path / "b")
    assert_same_tensors(stored(tmp_path / "a"), stored(tmp_path / "b"))
    nearfar.fit(config_file=tmp_path / "a" / "config.json", seed=6, out=tmp_path / "c")
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
