"""What is special to LooC: views that share one augmentation, and a space for each."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import tiny_session
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import Net, RandomKey
from nearfar.recipes.vision.looc import LeaveOneOut, LooC
from nearfar.similarity import ColorJitter, Compose, Flip

KEY = RandomKey(0)


def unit_rows(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1)


def looc_by_hand(z: dict[str, Tensor], queues: list[Tensor], tau: float) -> float:
    total = 0.0
    for row in range(len(z["q"])):
        for i, queue in enumerate(queues):
            score = lambda v, row=row, i=i: math.exp(float(z["q"][row, i] @ v) / tau)
            own = [score(z["k"][row, j, i]) for j in range(3)]
            rest = sum(score(v) for v in queue)
            total -= math.log(own[0] / (own[0] + rest)) if i == 0 else math.log(own[i] / (sum(own) + rest))
    return total / len(z["q"]) / 3


def test_loocs_objective_is_that_of_its_paper():
    net: Net = tiny_session("looc", batch_size=16).net.double()
    for i, queue in enumerate(net.queues):
        queue.push(unit_rows(512, 128, seed=10 + i))
    z = {"q": unit_rows(4, 3, 128), "k": unit_rows(4, 3, 3, 128, seed=1)}
    loss = LooC(queue_size=512, temperature=0.3).objective(net, z, KEY)
    assert float(loss) == pytest.approx(looc_by_hand(z, [queue.rows for queue in net.queues], 0.3), rel=1e-9)


def test_views_share_the_factor_of_their_space_and_no_other():
    session = tiny_session("looc", batch_size=64)
    bright, flip = ColorJitter(brightness=0.9), Flip()
    raw, rows = {"image": session.data.read(np.arange(64)) // 4 + 20}, session.plan.get_rows(0)
    views = LeaveOneOut(Compose(), (bright, flip)).view(raw, rows, KEY)
    image = raw["image"].float() / 255
    upright = [[torch.allclose(x / x.mean(), y / y.mean(), atol=0.01) for x, y in zip(view, image, strict=True)] for view in views.values()]
    light = [(view.mean((1, 2, 3)) / image.mean((1, 2, 3))).tolist() for view in views.values()]
    assert list(views) == ["v0", "v1", "v2", "v3"]
    assert light[2] == pytest.approx(light[0], rel=1e-3), "v2 has the query's brightness"
    assert upright[3] == upright[0], "v3 has the query's flip"
    for other in (light[1], light[3]):
        assert np.abs(np.subtract(other, light[0])).mean() > 0.1
    for other in (upright[1], upright[2]):
        assert 15 < np.not_equal(other, upright[0]).sum() < 50


def test_each_space_remembers_the_keys_that_are_its_positives():
    session = tiny_session("looc", batch_size=16)
    before, z = [queue.rows.clone() for queue in session.net.queues], {"k": unit_rows(16, 3, 3, 128).float()}
    session.recipe.update(session.net, z, 1.0)
    for i, queue in enumerate(session.net.queues):
        assert torch.equal(queue.rows[:16], z["k"][:, i, i])
        assert torch.equal(queue.rows[16:], before[i][16:])
