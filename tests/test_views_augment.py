"""`Augment` as a similarity, and the presets on real images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_sample_image
from torch import Tensor

from nearfar.core import Net, Plan, RandomKey, Rows, UsageError
from nearfar.recipes.vision.byol import BYOL
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.recipes.vision.swav import SwAV
from nearfar.similarity import (
    ColorJitter,
    Compose,
    Crop,
    Flip,
    GaussianBlur,
    Grayscale,
    ImageOp,
    ImageViews,
    Solarize,
    byol_views,
    choose_views,
    handwriting_views,
    moco_v1_views,
    moco_v2_views,
    simclr_views,
    swav_views,
)

KEY = RandomKey(11)("views")


class Held:
    """Images in memory, as a data room hands them over."""

    def __init__(self, images: Tensor):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def read(self, ids: np.ndarray) -> Tensor:
        return self.images[torch.as_tensor(ids)]


@pytest.fixture(scope="module")
def photos() -> Held:
    """200 tiles of 32 x 32 pixels from a photograph of a flower."""
    picture = torch.from_numpy(load_sample_image("flower.jpg").copy()).permute(2, 0, 1)
    tiles = picture[:, :416, :640].unfold(1, 32, 32).unfold(2, 32, 32).permute(1, 2, 0, 3, 4).reshape(-1, 3, 32, 32)
    return Held(tiles[:200].contiguous())


@pytest.fixture(scope="module")
def digits() -> tuple[Held, np.ndarray]:
    pixels, labels = load_digits(return_X_y=True)
    return Held(torch.from_numpy((np.asarray(pixels) * 255 / 16).astype(np.uint8)).view(-1, 1, 8, 8)), np.asarray(labels)


def rows_of(ids: np.ndarray, first_slot: int = 0) -> Rows:
    return Rows(ids, first_slot + np.arange(len(ids)), ids)


def ops(pipeline: ImageOp) -> tuple[ImageOp, ...]:
    assert isinstance(pipeline, Compose)
    return pipeline.ops


def seen(similarity: ImageViews, data: Held, rows: Rows) -> dict[str, Tensor]:
    return similarity.view(similarity.read(data, rows, KEY), rows, KEY)


def test_views_have_names_range_and_their_own_random_numbers(photos):
    rows = Plan(len(photos), 32, RandomKey(0)).get_rows(3)
    views = seen(simclr_views(32), photos, rows)
    assert list(views) == ["v0", "v1"]
    for i, view in enumerate(views.values()):
        assert view.shape == (32, 3, 32, 32)
        assert view.dtype == torch.float32
        assert 0 <= float(view.min()) <= float(view.max()) <= 1
        x, slots = photos.read(rows.ids).float() / 255, torch.as_tensor(rows.slots)
        assert torch.equal(view, simclr_views(32).pipelines[i](x, slots, KEY("view", i)))
    assert ((views["v0"] - views["v1"]).abs().amax((1, 2, 3)) > 0.01).all()


def test_a_chunk_sees_what_the_whole_batch_sees(photos):
    rows = Plan(len(photos), 30, RandomKey(0)).get_rows(1)
    similarity = byol_views(32)
    whole = seen(similarity, photos, rows)
    for part in rows.split(7):
        at = np.flatnonzero(np.isin(rows.slots, part.slots))
        for name, view in seen(similarity, photos, part).items():
            torch.testing.assert_close(view, whole[name][at], atol=1e-6, rtol=0)


def test_a_sample_drawn_again_is_seen_anew(photos):
    ids = np.zeros(2, dtype=np.int64)
    view = seen(simclr_views(32), photos, rows_of(ids))["v0"]
    assert not torch.allclose(view[0], view[1], atol=0.01)


def test_multi_crop_has_two_large_and_many_small_views(photos):
    views = seen(swav_views(32, small_crop_size=16, small_crops=6), photos, rows_of(np.arange(5)))
    assert [tuple(v.shape) for v in views.values()] == [(5, 3, 32, 32)] * 2 + [(5, 3, 16, 16)] * 6
    assert seen(swav_views(224), photos, rows_of(np.arange(2)))["v7"].shape == (2, 3, 96, 96)


def test_byol_blurs_the_first_view_always_and_solarises_only_the_second():
    rates = [
        {type(op): op.prob for op in ops(pipeline) if isinstance(op, GaussianBlur | Solarize)} for pipeline in byol_views(96).pipelines
    ]
    assert rates == [{GaussianBlur: 1.0, Solarize: 0.0}, {GaussianBlur: 0.1, Solarize: 0.2}]


@pytest.mark.parametrize("preset", [simclr_views, moco_v1_views, moco_v2_views])
def test_coloured_presets_give_as_many_views_as_asked_for(preset, photos):
    views = seen(preset(24, num_views=3), photos, rows_of(np.arange(4)))
    assert [tuple(v.shape) for v in views.values()] == [(4, 3, 24, 24)] * 3


def test_small_grey_images_are_handwriting_and_all_others_photographs():
    assert choose_views({"channels": 1, "size": 28}, moco_v2_views) == handwriting_views(28)
    assert choose_views({"channels": 1, "size": 96}, moco_v2_views) == moco_v2_views(96)
    assert choose_views({"channels": 3, "size": 32}, simclr_views) == simclr_views(32)


def test_small_photographs_are_jittered_half_as_much_and_not_blurred():
    small, large = (ops(simclr_views(size).pipelines[0]) for size in (32, 224))
    assert small[1:] == (Flip(), ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.2))
    assert large[1:] == (Flip(), ColorJitter(0.8, 0.8, 0.8, 0.2, prob=0.8), Grayscale(prob=0.2), GaussianBlur(prob=0.5))


@pytest.mark.parametrize(
    ("recipe", "smallest"),
    [
        (SimCLR(min_crop_scale=0.3, gray_prob=0.1), 0.3),
        (BYOL(min_crop_scale=0.3, gray_prob=0.1), 0.3),
        (MoCoV2(gray_prob=0.1), 0.2),
        (SwAV(gray_prob=0.1), 0.14),
    ],
)
def test_how_little_a_view_shows_and_how_often_it_is_grey_are_settings(recipe, smallest):
    net = Net()
    net.sizes = {"channels": 3, "size": 32}
    pipeline = recipe.similarity(net).pipelines[1]
    assert ops(pipeline)[0] == Crop(32, scale=(smallest, 1.0))
    assert Grayscale(prob=0.1) in ops(pipeline)


def test_handwriting_is_never_mirrored():
    half = torch.zeros(300, 1, 28, 28, dtype=torch.uint8)
    half[..., :14] = 255
    view = seen(handwriting_views(28), Held(half), rows_of(np.arange(300)))["v0"]
    assert bool((view[..., :14].mean((1, 2, 3)) > view[..., 14:].mean((1, 2, 3)) + 0.3).all())


def test_handwriting_views_of_digits_stay_the_same_digit(digits):
    """The nearest original of a view, by pixels, is mostly an image of the same digit, and views differ from their originals."""
    data, labels = digits
    ids = np.arange(600)
    view = seen(handwriting_views(8), data, rows_of(ids))["v0"]
    originals = data.images.float() / 255
    nearest = torch.cdist(view.flatten(1), originals.flatten(1)).argmin(1).numpy()
    assert (labels[nearest] == labels[ids]).mean() > 0.7
    assert float((view - originals[:600]).square().mean().sqrt()) > 0.1


def test_views_of_a_photo_are_nearer_to_each_other_than_to_other_photos(photos):
    """Mean colors of two uncolored crops: the simplest representation that the views should leave recognizable."""
    views = seen(ImageViews.repeat(Compose(Crop(32, scale=(0.5, 1.0)), Flip())), photos, rows_of(np.arange(200)))
    distance = torch.cdist(views["v0"].mean((2, 3)), views["v1"].mean((2, 3)))
    own = distance.diagonal()[:, None]
    assert float((distance > own).float().mean()) > 0.9


@pytest.mark.parametrize("wrong", [torch.rand(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8)])
def test_only_batches_of_bytes_are_images(wrong):
    with pytest.raises(UsageError, match=r"uint8 tensor \(n, c, h, w\)"):
        ImageViews.repeat(Flip()).view({"image": wrong}, rows_of(np.arange(2)), KEY)


def test_no_pipeline_no_views():
    with pytest.raises(UsageError, match="at least one pipeline"):
        ImageViews(())
