"""ST-DIM's and CPC's losses against loops over places and patches; the maps, grids and contexts they are computed from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nearfar.core import Net, RandomKey, UsageError
from nearfar.encoders import make_encoder, resolve_encoder
from nearfar.heads.pixelcnn_context import PixelCNNContext
from nearfar.losses import info_nce
from nearfar.recipes.control.st_dim import STDIM, info_nce_per_place
from nearfar.recipes.vision.cpc_vision import CPCVision, patch_info_nce
from nearfar.scores import Scores, bilinear, dot
from nearfar.similarity.patches import jitter_patches, split_patches


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def negative_log_share(scores: list[float], right: int) -> float:
    return math.log(sum(math.exp(s) for s in scores)) - scores[right]


def test_st_dim_is_the_papers_sum_over_places_moments_and_negatives():
    n, places, dim, width = 4, 6, 5, 3
    z = {"global": randn(n, dim), "local": randn(n, places, width, seed=1), "next": randn(n, places, width, seed=2)}
    net = Net(W_g=randn(dim, width, seed=3), W_l=randn(width, width, seed=4))
    found = STDIM().objective(net, z, RandomKey(0))
    sums = {"global_local": 0.0, "local_local": 0.0}
    for p in range(places):
        for t in range(n):
            g = [float(z["global"][t] @ net.W_g @ z["next"][other, p]) for other in range(n)]
            f = [float(z["local"][t, p] @ net.W_l @ z["next"][other, p]) for other in range(n)]
            sums["global_local"] += negative_log_share(g, t) / (n * places)
            sums["local_local"] += negative_log_share(f, t) / (n * places)
    for name, expected in sums.items():
        assert float(found[name]) == pytest.approx(expected, rel=1e-12)
    assert float(found["loss"]) == pytest.approx(sum(sums.values()), rel=1e-12)


def test_st_dims_places_are_tables_of_pairs_and_its_gradient_is_right():
    a, b = randn(3, 4, 5), randn(3, 4, 5, seed=1)
    expected = torch.stack([info_nce(Scores.from_pairs(a[p], b[p], score=dot)).mean() for p in range(3)]).mean()
    assert torch.allclose(info_nce_per_place(a, b), expected)
    assert torch.autograd.gradcheck(info_nce_per_place, (a.requires_grad_(), b.requires_grad_()))


def test_cpc_finds_the_patch_below_among_all_patches_of_the_batch():
    n, grid, dim, width = 2, 4, 5, 3
    c, z, way = randn(n, grid, grid, dim), randn(n, grid, grid, width, seed=1), randn(dim, width, seed=2)
    everywhere = [(m, a, b) for m in range(n) for a in range(grid) for b in range(grid)]
    for k in (1, 3):
        total, count = 0.0, 0
        for m, i, j in everywhere:
            if i + k < grid:
                scores = [float(c[m, i, j] @ way @ z[place]) for place in everywhere]
                total, count = total + negative_log_share(scores, everywhere.index((m, i + k, j))), count + 1
        assert count == n * (grid - k) * grid
        assert float(patch_info_nce(c, z, way, k)) == pytest.approx(total / count, rel=1e-6)


def test_cpc_is_bilinear_pairs_and_its_objective_the_mean_over_distances():
    c, z = randn(3, 5, 5, 4), randn(3, 5, 5, 6, seed=1)
    recipe, net = CPCVision(patches_per_side=5, min_steps_ahead=2, steps_ahead=4), Net(ways=torch.nn.Parameter(randn(3, 4, 6, seed=2)))
    found = recipe.objective(net, {"c": c, "z": z}, RandomKey(0))
    each = [patch_info_nce(c, z, way, k) for k, way in zip((2, 3, 4), net.ways, strict=True)]
    assert torch.allclose(found["loss"], torch.stack(each).mean())
    assert torch.equal(found["first_step_loss"], each[0])
    k, way = 2, net.ways[0]
    candidates = torch.cat([z[:, k:].reshape(-1, 6), z[:, :k].reshape(-1, 6)])
    with_bilinear = info_nce(Scores.from_pairs(c[:, :-k].reshape(-1, 4), candidates, score=bilinear(way))).mean()
    assert torch.allclose(each[0], with_bilinear)
    for wrong in ({"steps_ahead": 5}, {"min_steps_ahead": 3, "steps_ahead": 2}):
        with pytest.raises(UsageError, match="--min-steps-ahead"):
            CPCVision(**({"patches_per_side": 5} | wrong))


def test_the_context_knows_nothing_of_the_rows_below():
    head = PixelCNNContext(3, 4).double()
    z = randn(2, 6, 6, 3).requires_grad_()
    for row in (0, 2, 4):
        (gradient,) = torch.autograd.grad(head(z)[:, row].sum(), z)
        reached = gradient.abs().sum((0, 2, 3)) > 0
        assert reached.tolist() == [True] * (row + 1) + [False] * (5 - row)


def test_patches_overlap_by_half_and_lie_where_they_should():
    image = torch.arange(2 * 3 * 34 * 32).view(2, 3, 34, 32) % 251
    cut = split_patches(image, 7)
    assert cut.shape == (2, 7, 7, 3, 8, 8)
    for i, j in ((0, 0), (3, 5), (6, 6)):
        assert torch.equal(cut[:, i, j], image[:, :, 4 * i : 4 * i + 8, 4 * j : 4 * j + 8])
    assert split_patches(torch.zeros(1, 1, 256, 256), 7).shape[-1] == 64
    with pytest.raises(UsageError, match="--patches-per-side 9"):
        split_patches(torch.zeros(1, 1, 8, 8), 9)


@pytest.mark.parametrize(("side", "border"), [(8, 1), (64, 4)])
def test_jitter_moves_each_patch_by_itself_and_by_slot(side, border):
    x = torch.rand(3, 2, 2, 1, side, side, generator=torch.Generator().manual_seed(0)) + 0.1
    slots = torch.tensor([7, 100, 9])
    moved, before = jitter_patches(x, slots, RandomKey(1)), border // 2
    inner = side - border
    seen = set()
    for at in np.ndindex(3, 2, 2):
        windows = [(a, b) for a in range(border + 1) for b in range(border + 1)]
        fits = [
            (a, b)
            for a, b in windows
            if torch.equal(moved[at][:, before : before + inner, before : before + inner], x[at][:, a : a + inner, b : b + inner])
        ]
        assert len(fits) == 1
        seen.add(fits[0])
        assert int((moved[at] == 0).sum()) == side**2 - inner**2
    assert len(seen) > 1
    assert torch.equal(jitter_patches(x[1:], slots[1:], RandomKey(1)), moved[1:])
    assert torch.equal(jitter_patches(x[..., :4, :4], slots, RandomKey(1)), x[..., :4, :4])


def test_an_image_is_the_mean_of_its_patches():
    sizes = {"n": 9, "channels": 1, "size": 8, "mean": [0.3], "std": [0.2], "classes": 0}
    recipe = CPCVision(patches_per_side=3, steps_ahead=2, dim=8)
    net = recipe.build(sizes, make_encoder("convnet-gn", sizes)).eval()
    image = (torch.arange(2 * 64) * 37 % 256).to(torch.uint8).view(2, 1, 8, 8)
    expected = torch.stack([net.encoder(image[:, :, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4]) for i in range(3) for j in range(3)]).mean(0)
    assert torch.allclose(recipe.encode(net, image), expected, atol=1e-6)


def test_the_network_of_the_paper_has_its_maps():
    sizes = {"n": 9, "channels": 1, "height": 210, "width": 160}
    assert resolve_encoder("auto", sizes) == "nature"
    encoder = make_encoder("nature", sizes)
    frames = (torch.arange(2 * 210 * 160) % 256).to(torch.uint8).view(2, 1, 210, 160)
    phi, maps = encoder.encode_with_map(frames)
    assert (phi.shape, maps.shape, encoder.map_size) == ((2, 256), (2, 88, 128), (11, 8))
    assert torch.equal(encoder(frames), phi)
    assert torch.allclose(encoder(frames.float() / 255), phi, atol=1e-5)
    x = frames.float() / 255
    for layer, stride in zip(encoder.local[::2], (4, 2, 2), strict=True):
        x = F.relu(F.conv2d(x, layer.weight, layer.bias, stride))
    assert torch.allclose(maps.unflatten(1, (11, 8)).permute(0, 3, 1, 2), x, atol=1e-5)
    assert resolve_encoder("auto", sizes | {"height": 42, "width": 32}) == "nature-small"
    with pytest.raises(UsageError, match="too small"):
        make_encoder("nature", sizes | {"height": 42, "width": 32})
    with pytest.raises(UsageError, match="nature or nature-small"):
        make_encoder("resnet18", sizes)
