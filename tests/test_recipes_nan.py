"""A NaN is never hidden in training: a run stops in the step whose loss is NaN, before the optimizer."""

from __future__ import annotations

import pytest
import torch
from helpers import tiny_session
from micro import micro_session

from nearfar import recipes
from nearfar.core import Net, Recipe
from nearfar.train.optimizers import select_parameters
from nearfar.train.training_loop import DivergenceError, Hook, train

LEARNING = [name for name in recipes.list_methods() if recipes.load_method(name).recipe_class.trains]


class Stopped(Exception):
    pass


class StopAfterOneStep(Hook):
    def step(self, session, values, z):
        raise Stopped


def trained_parts(net: Net, recipe: Recipe) -> dict[str, torch.nn.Parameter]:
    """The last parameter of every trained part of a net, by the part's name."""
    return {name.split(".")[0]: p for name, p in select_parameters(net, recipe.trains)}


@pytest.mark.parametrize("name", LEARNING)
def test_a_nan_weight_stops_the_run_before_the_optimizer(name):
    session = micro_session(name, steps=2)
    with pytest.raises(Stopped):
        train(session, [StopAfterOneStep()])  # not at the start of an epoch, when some recipes initialize a part again
    clean = {k: v.clone() for k, v in session.net.state_dict().items()}
    stepped = []
    for optimizer, turn in zip(session.optimizers, session.phases, strict=True):
        optimizer.register_step_pre_hook(lambda *_, turn=turn: stepped.append(turn))
    for turn in session.phases:
        for part, weight in trained_parts(session.net, turn).items():
            stepped.clear()
            with torch.no_grad():
                weight.fill_(torch.nan)
            with pytest.raises(DivergenceError, match="loss became nan at step 2"):
                train(session)
            assert turn not in stepped, f"{part}: the optimizer made a step with a NaN gradient"
            session.net.load_state_dict(clean)


@pytest.mark.parametrize("name", ["hermans-batch-hard", "hadsell-drlim", "facenet"])
def test_a_learning_rate_that_overflows_stops_the_run_before_a_checkpoint(name):
    with pytest.raises(DivergenceError, match="loss became"):
        train(tiny_session(name, steps=5, batch_size=32, lr=1e25))
