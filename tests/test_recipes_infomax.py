"""What is special to Deep InfoMax and its successor: a whole image against the places of its maps, by loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import opened, tiny_session
from torch import Tensor

from nearfar.core import Key, Net, UsageError
from nearfar.encoders import HuggingFaceImage, make_encoder
from nearfar.encoders.maps import map_widths, with_maps
from nearfar.recipes.vision.dim import DIM

KEY = Key(0)


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
        whole, maps = with_maps(encoder, x)
        torch.testing.assert_close(whole, encoder(x))
        torch.testing.assert_close(maps[-1].mean(1), encoder(x))
    assert tuple(found.shape[2] for found in maps) == map_widths(encoder)
    assert [found.shape[1] for found in maps] == sorted((found.shape[1] for found in maps), reverse=True), "the finest first"


def test_a_place_of_a_map_is_a_place_of_the_picture():
    encoder = make_encoder("convnet-gn", {"channels": 1, "size": 8, "mean": [0.3], "std": [0.4]}).eval()
    encoder[1][1] = torch.nn.Identity()  # a norm would carry the change to all places
    x, other = digits(1), digits(1)
    other[:, :, 2, 5] += 1
    with torch.no_grad():
        changed = (with_maps(encoder, x)[1][0] != with_maps(encoder, other)[1][0]).any(2)[0].view(8, 8)
    rows, columns = (changed.any(axis).nonzero()[:, 0].tolist() for axis in (1, 0))
    assert set(rows) <= {1, 2, 3}
    assert set(columns) <= {4, 5, 6}


def test_an_encoder_without_maps_is_named():
    with pytest.raises(UsageError, match="--encoder convnet"):
        DIM().build({"n": 8}, torch.nn.Sequential(torch.nn.Identity(), HuggingFaceImage.__new__(HuggingFaceImage)))


# --- Deep InfoMax ---------------------------------------------------------------------------------


def dim_by_hand(g: Tensor, local: Tensor, estimator: str) -> float:
    """The bound to be minimised, from scores T of every image with every place of every image."""
    n, places = local.shape[:2]
    T = [[[float(g[i] @ local[j, p]) for p in range(places)] for j in range(n)] for i in range(n)]
    joint = [T[i][i][p] for i in range(n) for p in range(places)]
    apart = [T[i][j][p] for i in range(n) for j in range(n) if j != i for p in range(places)]
    softplus = lambda t: math.log1p(math.exp(t))
    if estimator == "jsd":
        return -(np.mean([-softplus(-t) for t in joint]) - np.mean([softplus(t) for t in apart]))
    if estimator == "dv":
        return -(np.mean(joint) - math.log(np.mean(np.exp(apart))))
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
    session = tiny_session("dim", batch=16)
    net, x = session.net.eval(), digits(4)
    with torch.no_grad():
        for layer, places in ((-1, 16), (-2, 16), (-3, 64)):
            recipe = DIM(layer=layer)
            built = recipe.build(session.sizes, net.encoder).eval()
            z = recipe.embed(built, {"v0": x}, KEY)
            assert z["local"].shape == (4, places, recipe.dim)
            torch.testing.assert_close(z["global"], built.whole(net.encoder(x)))
            one = built.places(with_maps(net.encoder, x)[1][layer][2])
            torch.testing.assert_close(z["local"][2], one)


def test_dim_sees_images_as_they_are():
    session = tiny_session("dim", batch=16)
    views = session.similarity().view({"image": session.data.read(np.arange(16))}, session.plan.rows(0), KEY)
    assert list(views) == ["v0"]
    assert torch.equal(views["v0"], session.data.read(np.arange(16)).float() / 255)
