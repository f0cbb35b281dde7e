"""MoCo's queries and keys: normalized in groups, shuffled ones for keys, which come back in the order of the queries."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import nearfar
from nearfar.core import Net, RandomKey, TrainConfig
from nearfar.recipes.vision.mochi import MoCHi
from nearfar.recipes.vision.moco import MoCo
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.recipes.vision.pcl import PCL
from nearfar.train.session import build_net

SIZES = {"n": 100, "channels": 1, "size": 8, "mean": [0.5], "std": [0.3], "classes": 0}


def batch(n: int = 24) -> dict[str, torch.Tensor]:
    views = torch.rand(2, n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return {"v0": views[0], "v1": views[1], "slot": torch.arange(100, 100 + n)}


def keys(groups: int, encoder: str = "convnet") -> tuple[torch.Tensor, Net]:
    recipe = MoCo(queue_size=64, batch_norm_groups=groups)
    net = build_net(recipe, TrainConfig(encoder=encoder), SIZES).train()
    return recipe.embed(net, batch(), RandomKey(0))["k"], net


@pytest.mark.parametrize("groups", [2, 6])
def test_groups_change_nothing_without_batch_statistics(groups):
    torch.testing.assert_close(keys(groups, "convnet-gn")[0], keys(1, "convnet-gn")[0])


def test_each_group_has_its_own_batch_statistics():
    """Queries: neighbors in the batch; keys: neighbors in another order. Whoever shares a group with a query rarely does with its key."""
    recipe, x = MoCo(queue_size=64, batch_norm_groups=3), batch()
    net = build_net(recipe, TrainConfig(encoder="convnet"), SIZES).train()
    whole = build_net(MoCo(queue_size=64), TrainConfig(encoder="convnet"), SIZES).train()
    found = recipe.embed(net, x, RandomKey(0))
    order = RandomKey(0)("shuffle").bits(x["slot"])[:, 0].argsort()
    for group, other in zip(torch.arange(24).chunk(3), order.chunk(3), strict=True):
        torch.testing.assert_close(found["q"][group], whole.query(x["v0"][group]))
        torch.testing.assert_close(found["k"][other], whole.key(x["v1"][other]))
        assert set(group.tolist()) != set(other.tolist())
    assert not torch.allclose(found["k"], whole.key(x["v1"]), atol=1e-3)


def test_both_views_in_one_pass_have_groups_of_their_own():
    """Queries of symmetric MoCo are those of two passes; every key is normalized with as many others, of both views."""
    recipe, x = MoCo(queue_size=64, batch_norm_groups=3, symmetric=True), batch()
    net = build_net(recipe, TrainConfig(encoder="convnet"), SIZES).train()
    whole = build_net(MoCo(queue_size=64), TrainConfig(encoder="convnet"), SIZES).train()
    found = recipe.embed(net, x, RandomKey(0))
    for group in torch.arange(24).chunk(3):
        torch.testing.assert_close(found["q"][group], whole.query(x["v0"][group]))
        torch.testing.assert_close(found["q1"][group], whole.query(x["v1"][group]))
    images, keys = torch.cat([x["v0"], x["v1"]]), torch.cat([found["k0"], found["k"]])
    order = torch.cat(list(RandomKey(0)("shuffle").bits(x["slot"], columns=2).unbind(1))).argsort()
    assert len(keys) == len(order) == 48
    for group in order.chunk(6):
        torch.testing.assert_close(keys[group], whole.key(images[group]))
        assert 0 < (group < 24).sum() < 8, "views are mixed"


def test_a_run_in_groups_is_saved_and_loaded(tmp_path):
    """And the loaded encoder is an ordinary one: single images, no groups."""
    run = nearfar.fit(
        "moco", data="digits", out=tmp_path / "run", steps=3, batch_size=24, queue_size=48, batch_norm_groups=3, encoder="convnet"
    )
    images = torch.rand(5, 1, 8, 8)
    again = nearfar.load(tmp_path / "run")
    assert torch.equal(again.encode(images), run.encode(images))
    torch.testing.assert_close(again.encode(images[:1]), run.encode(images)[:1])
    with pytest.raises(nearfar.UsageError, match="20 images cannot be divided into 3 equal groups"):
        nearfar.fit("moco", data="digits", steps=1, batch_size=20, queue_size=40, batch_norm_groups=3, encoder="convnet")


def test_groups_are_drawn_anew_in_every_step():
    draws = {tuple(RandomKey(0)("shuffle").bits(torch.arange(t, t + 24))[:, 0].argsort().tolist()) for t in range(0, 24 * 20, 24)}
    assert len(draws) == 20


SYMMETRIC = [
    MoCo(queue_size=64, temperature=1.0),
    MoCoV2(queue_size=64),
    MoCHi(queue_size=64, hardest_keys=16, mixed_negatives=8, query_mixed_negatives=4, mixing_start_ratio=0.0),
    PCL(queue_size=64, clusters=(5,)),
]


@pytest.mark.parametrize("recipe", SYMMETRIC, ids=lambda r: r.card.title)
def test_symmetric_is_the_mean_of_both_directions(recipe):
    """Once as it is, once with the views exchanged; both views' keys join the queue."""
    net = build_net(recipe, TrainConfig(encoder="convnet-gn"), SIZES).train()
    there = batch() | {"id": torch.arange(24)}
    back = there | {"v0": there["v1"], "v1": there["v0"]}
    one, other = (recipe.objective(net, recipe.embed(net, x, RandomKey(0)), RandomKey(1)) for x in (there, back))
    both = dataclasses.replace(recipe, symmetric=True)
    z = both.embed(net, there, RandomKey(0))
    torch.testing.assert_close(both.objective(net, z, RandomKey(1)), (one + other) / 2)
    assert abs(one - other) > 1e-4
    both.update(net, {k: v.detach() for k, v in z.items()}, 0.5)
    torch.testing.assert_close(net.queue.rows[:48], torch.cat([z["k"], z["k0"]]).detach())
