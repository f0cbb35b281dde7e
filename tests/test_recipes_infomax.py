"""What is special to Deep InfoMax and its successor: a whole image against the places of its maps, by loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import opened, tiny_session
from torch import Tensor

from nearfar.core import Net, RandomKey, UsageError
from nearfar.encoders import HuggingFaceImage, make_encoder
from nearfar.encoders.feature_maps import encode_with_maps, get_map_channels
from nearfar.recipes.vision.amdim import AMDIM, draw_place, mean_squared_score, soft_clipped_dot
from nearfar.recipes.vision.dim import DIM

KEY = RandomKey(0)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def digits(n: int) -> Tensor:
    return opened("digits").train.read(np.arange(n)).float() / 255


# --- maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["convnet", "convnet-gn", "resnet18", "resnet50"])
def test_the_average_of_the_last_map_is_the_representation(name):
    sizes = {"channels": 1, "size": 8, "mean": [0.3], "std": [0.4]}
    encoder = make_encoder(name, sizes).eval()
    x = digits(3)
    with torch.no_grad():
        whole, maps = encode_with_maps(encoder, x)
        torch.testing.assert_close(whole, encoder(x))
        torch.testing.assert_close(maps[-1].mean(1), encoder(x))
    assert tuple(found.shape[2] for found in maps) == get_map_channels(encoder)
    assert [found.shape[1] for found in maps] == sorted((found.shape[1] for found in maps), reverse=True), "the finest first"


def test_a_place_of_a_map_is_a_place_of_the_picture():
    encoder = make_encoder("convnet-gn", {"channels": 1, "size": 8, "mean": [0.3], "std": [0.4]}).eval()
    encoder[1][1] = torch.nn.Identity()  # type: ignore[index]  # a norm would carry the change to all places
    x, other = digits(1), digits(1)
    other[:, :, 2, 5] += 1
    with torch.no_grad():
        changed = (encode_with_maps(encoder, x)[1][0] != encode_with_maps(encoder, other)[1][0]).any(2)[0].view(8, 8)
    rows, columns = (changed.any(axis).nonzero()[:, 0].tolist() for axis in (1, 0))
    assert set(rows) <= {1, 2, 3}
    assert set(columns) <= {4, 5, 6}


def test_an_encoder_without_maps_is_named():
    with pytest.raises(UsageError, match="--encoder convnet"):
        DIM().build({"n": 8}, torch.nn.Sequential(torch.nn.Identity(), HuggingFaceImage.__new__(HuggingFaceImage)))


# --- Deep InfoMax ---------------------------------------------------------------------------------


def dim_by_hand(g: Tensor, local: Tensor, estimator: str) -> float:
    """The bound to be minimized, from scores T of every image with every place of every image."""
    n, places = local.shape[:2]
    T = [[[float(g[i] @ local[j, p]) for p in range(places)] for j in range(n)] for i in range(n)]
    joint = [T[i][i][p] for i in range(n) for p in range(places)]
    apart = [T[i][j][p] for i in range(n) for j in range(n) if j != i for p in range(places)]
    softplus = lambda t: math.log1p(math.exp(t))
    if estimator == "jsd":
        return float(np.mean([softplus(-t) for t in joint]) + np.mean([softplus(t) for t in apart]))
    if estimator == "dv":
        return math.log(np.mean(np.exp(apart))) - float(np.mean(joint))
    rows = []
    for i in range(n):
        others = sum(math.exp(T[i][j][p]) for j in range(n) if j != i for p in range(places))
        rows += [-math.log(math.exp(t) / (math.exp(t) + others)) for t in T[i][i]]
    return float(np.mean(rows))


@pytest.mark.parametrize("estimator", ["infonce", "jsd", "dv"])
def test_dims_objective_is_the_bound_of_its_paper(estimator):
    z = {"global": normal(5, 6), "local": normal(5, 4, 6, seed=1)}
    loss = DIM(estimator=estimator).objective(Net(), z, KEY)
    assert float(loss) == pytest.approx(dim_by_hand(z["global"], z["local"], estimator), rel=1e-10)


def test_dim_compares_the_representation_with_the_places_of_the_map_asked_for():
    session = tiny_session("dim", batch_size=16)
    net, x = session.net.eval(), digits(4)
    with torch.no_grad():
        for layer, places in ((-1, 16), (-2, 16), (-3, 64)):
            recipe = DIM(local_layer=layer)
            built = recipe.build(session.sizes, net.encoder).eval()
            z = recipe.embed(built, {"v0": x}, KEY)
            assert z["local"].shape == (4, places, recipe.dim)
            torch.testing.assert_close(z["global"], built.whole(net.encoder(x)))
            one = built.places(encode_with_maps(net.encoder, x)[1][layer][2])
            torch.testing.assert_close(z["local"][2], one)


def test_dim_sees_images_as_they_are():
    session = tiny_session("dim", batch_size=16)
    views = session.similarity().view({"image": session.data.read(np.arange(16))}, session.plan.get_rows(0), KEY)
    assert list(views) == ["v0"]
    assert torch.equal(views["v0"], session.data.read(np.arange(16)).float() / 255)


# --- AMDIM ----------------------------------------------------------------------------------------


def amdim_by_hand(z: dict[str, Tensor], recipe: AMDIM, rng_key: RandomKey) -> float:
    """Three pairs of scales, both ways, pair by pair."""
    n, total = len(z["whole0"]), 0.0
    for a, b in ((0, 1), (1, 0)):
        drawn = rng_key("place", a).integers(z["slot"], z[f"coarse{a}"].shape[1])
        place = [z[f"coarse{a}"][i, int(drawn[i])] for i in range(n)]
        for queries, local in ((z[f"whole{a}"], z[f"coarse{b}"]), (z[f"whole{a}"], z[f"fine{b}"]), (place, z[f"coarse{b}"])):
            raw = [[[float(q @ x) / math.sqrt(recipe.dim) for x in image] for image in local] for q in queries]
            bent = [[[recipe.score_bound * math.tanh(s / recipe.score_bound) for s in image] for image in row] for row in raw]
            losses = []
            for i in range(n):
                others = sum(math.exp(s) for j in range(n) if j != i for s in bent[i][j])
                losses += [-math.log(math.exp(s) / (math.exp(s) + others)) for s in bent[i][i]]
            total += float(np.mean(losses)) + recipe.score_penalty_weight * float(np.mean(np.square(raw)))
    return total / 2


def amdim_scales() -> dict[str, Tensor]:
    shapes = {"whole": (4, 6), "coarse": (4, 3, 6), "fine": (4, 5, 6)}
    z = {f"{name}{view}": 3 * normal(*shape, seed=7 * view + len(name)) for name, shape in shapes.items() for view in (0, 1)}
    return z | {"slot": torch.arange(20, 24)}


def test_amdims_objective_is_that_of_its_paper():
    z, recipe = amdim_scales(), AMDIM(dim=6, score_bound=2.0, score_penalty_weight=0.3)
    loss = recipe.objective(Net(), z, KEY)["loss"]
    assert float(loss) == pytest.approx(amdim_by_hand(z, recipe, KEY), rel=1e-10)
    assert float(loss) != pytest.approx(amdim_by_hand(z, AMDIM(dim=6, score_bound=20.0, score_penalty_weight=0.3), KEY), rel=1e-3)


def test_amdims_places_are_drawn_by_slot_and_step():
    local, slots = normal(400, 4, 2), torch.arange(400)
    drawn = draw_place(local, slots, KEY)
    which = (drawn[:, None] == local).all(2)
    assert (which.sum(1) == 1).all()
    assert int(which.sum(0).min()) > 60, "all places are drawn"
    assert torch.equal(drawn[100:], draw_place(local[100:], slots[100:], KEY))
    assert not torch.equal(drawn, draw_place(local, slots, KEY("another step")))


def test_amdims_scores_are_soft_clipped_and_their_squares_are_of_all_pairs():
    g, local = 5 * normal(4, 6), 5 * normal(4, 3, 6, seed=1)
    table = g @ local.flatten(0, 1).T / math.sqrt(6)
    torch.testing.assert_close(mean_squared_score(g, local), table.square().mean())
    bent = soft_clipped_dot(6, 2.0)(g, local.flatten(0, 1))
    torch.testing.assert_close(bent, 2 * torch.tanh(table / 2))
    assert float(table.abs().max()) > 10
    assert float(bent.abs().max()) <= 2


def test_amdim_embeds_each_view_by_itself():
    session = tiny_session("amdim", batch_size=16)
    recipe, net = session.recipe, session.net.eval()
    x = {"v0": digits(8)[:4], "v1": digits(8)[4:], "slot": torch.arange(4)}
    with torch.no_grad():
        z, turned = recipe.embed(net, x, KEY), recipe.embed(net, x | {"v0": x["v1"], "v1": x["v0"]}, KEY)
    for name in ("whole", "coarse", "fine"):
        torch.testing.assert_close(z[f"{name}0"], turned[f"{name}1"])
        torch.testing.assert_close(z[f"{name}1"], turned[f"{name}0"])
    assert [tuple(z[f"{name}0"].shape[:-1]) for name in ("whole", "coarse", "fine")] == [(4,), (4, 16), (4, 64)]
