"""What can be opened: names, arrays, pairs, datasets; and what an Images object says of itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import nearfar.data.images.dataset as images_module
from nearfar.core import UsageError
from nearfar.data import Images, load_images
from nearfar.data.common.image_stores import InMemoryImageStore

GREY = np.random.default_rng(0).integers(0, 256, (20, 6, 6), dtype=np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (20, 6, 6, 3), dtype=np.uint8)


def everything(spec, **options) -> Images:
    return load_images(spec, test_ids=[], **options).train


def pixels(data: Images) -> np.ndarray:
    return data.read(np.arange(len(data))).numpy()


# --- names and paths --------------------------------------------------------------------------------------------


def test_digits():
    data, known = everything("digits"), load_digits()
    assert (len(data), data.shape, data.classes, data.source) == (1797, (1, 8, 8), tuple("0123456789"), "digits")
    np.testing.assert_array_equal(data.labels, known.target)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.round(pixels(data)[:, 0] / 255 * 16), known.images)  # type: ignore[attr-defined]
    assert pixels(data).max() == 255
    splits = load_images("digits")
    assert splits.test is not None
    assert len(splits.test) == sum(round(int(c) / 5) for c in np.bincount(known.target))  # type: ignore[attr-defined]


def test_unknown_name_suggests_a_known_one():
    with pytest.raises(UsageError, match=r"no data 'digit': .*Did you mean 'digits'\?"):
        load_images("digit")


def test_missing_paths_and_no_data_at_all(tmp_path):
    with pytest.raises(UsageError, match="there is no such file, folder or name"):
        load_images(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="there is no such file, folder or name"):
        load_images("x" * 5000)
    with pytest.raises(UsageError, match="no data given"):
        load_images("")


def test_a_text_file_is_no_data(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"cannot read images from the file .*notes\.txt: .*\.npy or \.npz"):
        load_images(tmp_path / "notes.txt")


def test_home_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "a.npy", GREY)
    assert len(everything("~/a.npy")) == 20


@pytest.mark.parametrize("spec", [None, 3, {"x": GREY}, iter([GREY])])
def test_other_things_are_refused(spec):
    with pytest.raises(UsageError, match="cannot read images from a"):
        load_images(spec)


def test_bad_options():
    with pytest.raises(UsageError, match="--image-size must be at least 1, got 0"):
        load_images(GREY, image_size=0)
    with pytest.raises(UsageError, match="--on-error must be 'stop' or 'skip', got 'ignore'"):
        load_images(GREY, on_error="ignore")


# --- arrays -----------------------------------------------------------------------------------------------------


def test_layouts_agree():
    first = COLOUR.transpose(0, 3, 1, 2)
    for spec in (COLOUR, first, torch.from_numpy(COLOUR), torch.from_numpy(first.copy())):
        np.testing.assert_array_equal(pixels(everything(spec)), first)
    for spec in (GREY, GREY[:, None], GREY[..., None], torch.from_numpy(GREY)):
        np.testing.assert_array_equal(pixels(everything(spec)), GREY[:, None])


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.float32, torch.float64])
def test_floats_are_scaled(kind):
    spec = (GREY / 255).astype(kind) if isinstance(kind, type) else torch.from_numpy(GREY / 255).to(kind)
    np.testing.assert_array_equal(pixels(everything(spec))[:, 0], GREY)
    assert pixels(everything(spec * 0 + 1.9 / 255)).max() == 2, "rounded, not cut off"


def test_the_caller_s_array_stays_the_caller_s():
    mine = GREY.copy()
    data = everything(mine)
    mine[:] = 0
    np.testing.assert_array_equal(pixels(data)[:, 0], GREY)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GREY.astype(np.int64), r"holds int64; images must be uint8 \(0 to 255\) or floats in \[0, 1\]"),
        (GREY.astype(np.float32), r"holds floats from 0 to 255; use floats in \[0, 1\]"),
        (np.full((4, 6, 6), np.nan), "holds floats from nan to nan"),
        (np.array([None, None]), "holds object"),
        (GREY > 3, "holds bool"),
        (GREY[0], r"has the shape \(6, 6\); images must have the shape \(n, height, width\)"),
        (np.zeros((4, 6, 6, 4), np.uint8), r"has the shape \(4, 6, 6, 4\); images"),
        (np.zeros((4, 0, 0), np.uint8), "it contains no pixels"),
        (np.zeros((0, 6, 6), np.uint8), "it contains no pixels"),
        (GREY[:1], "has 1 image to learn from; at least 2 are needed"),
        (GREY[:, :4], "are 4 pixels high and 6 wide: --image-size 4"),
    ],
)
def test_arrays_that_are_no_images(spec, message):
    with pytest.raises(UsageError, match=message):
        load_images(spec)


def test_image_size_scales_arrays_as_pillow_does():
    data = everything(COLOUR, image_size=9)
    expected = np.asarray(Image.fromarray(COLOUR[7]).resize((9, 9), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(data.read([7])[0].numpy(), expected.transpose(2, 0, 1))
    cropped = everything(GREY[:, :4], image_size=4)
    np.testing.assert_array_equal(pixels(cropped)[:, 0], GREY[:, :4, 1:5])


# --- labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "classes", "first"),
    [
        ([3, 7] * 10, ("3", "7"), [0, 1]),
        (np.array(["dog", "cat"] * 10), ("cat", "dog"), [1, 0]),
        (torch.arange(20) % 12, tuple(str(i) for i in range(12)), [0, 1]),
        (np.array([[1], [0]] * 10), ("0", "1"), [1, 0]),
        ([True, False] * 10, ("False", "True"), [1, 0]),
        (np.array(["dog", "cat"] * 10, dtype=object), ("cat", "dog"), [1, 0]),
        (np.array([7, 3] * 10, dtype=object), ("3", "7"), [1, 0]),
        ([1, -1] * 10, ("-1", "1"), [1, 0]),
    ],
)
def test_labels_are_numbered_from_zero(labels, classes, first):
    data = everything((GREY, labels))
    assert data.labels is not None
    assert (data.classes, data.labels[:2].tolist(), data.labels.dtype) == (classes, first, np.int64)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(19, int), "has 20 images but 19 labels"),
        (np.zeros(20), "labels of type float64; labels must be whole numbers or texts"),
        (np.zeros((20, 10), int), r"labels of the shape \(20, 10\)"),
        (np.array([None] * 20), "labels of type object"),
        (np.array(["a", float("nan")] * 10, dtype=object), "labels of type object"),
        ([-1, 0, 1, 2] * 5, "the label -1 among others: if it means unknown, leave those images out"),
        ([[1], [2, 3]], "labels that are not a plain list"),
    ],
)
def test_impossible_labels(labels, message):
    with pytest.raises(UsageError, match=message):
        load_images((GREY, labels))


def test_unlabelled_hides_labels_for_good():
    data = everything((GREY, np.arange(20) % 4))
    for hidden in (data.drop_labels(), data.drop_labels().subset([1, 2]), data.subset([1, 2]).drop_labels()):
        assert (hidden.labels, hidden.classes, hidden.sizes()["classes"]) == (None, (), 0)
    assert data.labels is not None, "the original keeps its own"
    assert data.drop_labels().fingerprint == data.fingerprint


# --- datasets ---------------------------------------------------------------------------------------------------


class Photos(Dataset):
    """Pillow images of several sizes and modes, with labels; item 3 cannot be read."""

    classes = ("zebra", "ant")

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i == 3:
            raise RuntimeError("disk on fire")
        return Image.new("L" if i % 2 else "RGB", (10 + i, 10), 40 * i if i % 2 else (40 * i, 0, 0)), i % 2


class Arrays(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Stream(IterableDataset):
    def __iter__(self):
        yield from GREY


def test_a_dataset_of_pillow_images(tmp_path):
    with pytest.raises(UsageError, match="sample 3 of Photos of 6 items: disk on fire"):
        load_images(Photos())
    data = everything(Photos(), on_error="skip")
    assert (len(data), data.shape, data.classes, data.skipped) == (5, (3, 64, 64), ("zebra", "ant"), ("row 3",))
    assert [data.name(i) for i in range(5)] == ["row 0", "row 1", "row 2", "row 4", "row 5"]
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 0, 0, 1]
    assert data.read([1, 2])[:, :, 30, 30].tolist() == [[40, 40, 40], [80, 0, 0]]
    assert everything(Photos(), on_error="skip", image_size=5).shape == (3, 5, 5)


def test_a_tensor_dataset_equals_its_tensors():
    labels = torch.arange(20) % 3
    floats = torch.from_numpy(COLOUR.transpose(0, 3, 1, 2).copy()).float() / 255
    data = everything(TensorDataset(floats, labels))
    same = everything((COLOUR, labels))
    assert data.labels is not None
    np.testing.assert_array_equal(pixels(data), pixels(same))
    np.testing.assert_array_equal(data.labels, same.labels)
    assert (data.classes, data.fingerprint) == (same.classes, same.fingerprint)


def test_a_list_of_images_will_do():
    np.testing.assert_array_equal(pixels(everything(list(COLOUR))), COLOUR.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "a dataset with a length"),
        (Arrays(["a", "b"]), "sample 0 of Arrays of 2 items: it is a str; a sample must be an image"),
        (Arrays([{"image": 1}]), "it is a dict"),
        (Arrays([GREY[0].astype(int)] * 2), "sample 0 of Arrays of 2 items: it holds int64"),
        (Arrays([(GREY[0], 1), GREY[1]]), "has labels for some samples only"),
        (Arrays([]), "has no sample that can be read"),
        (Arrays([GREY[0]]), "has 1 image to learn from"),
    ],
)
def test_datasets_that_are_none(dataset, message):
    with pytest.raises(UsageError, match=message):
        load_images(dataset)


# --- what Images say --------------------------------------------------------------------------------------------


def test_subsets_keep_names_labels_and_pixels():
    data = everything((GREY, np.arange(20)))
    part = data.subset([5, 3, 9]).subset(np.array([2, 0]))
    assert part.labels is not None
    assert ([part.name(0), part.name(1)], part.labels.tolist()) == (["row 9", "row 5"], [9, 5])
    np.testing.assert_array_equal(pixels(part)[:, 0], GREY[[9, 5]])
    np.testing.assert_array_equal(pixels(data.subset(np.arange(20) > 17))[:, 0], GREY[18:])
    assert len(data.subset([])) == 0
    assert data.read([]).shape == (0, 1, 6, 6)
    assert torch.equal(data.read(torch.tensor([4, 4])), data.read([4, 4]))
    with pytest.raises(IndexError):
        data.read([20])


def test_fingerprint_sees_every_byte_the_shape_and_the_order():
    data = everything(GREY)
    changed = GREY.copy()
    changed[19, 5, 5] ^= 1
    prints = [
        data.fingerprint,
        everything(changed).fingerprint,
        everything(GREY.reshape(5, 12, 12)).fingerprint,
        everything(GREY, image_size=5).fingerprint,
        data.subset([0, 1]).fingerprint,
        data.subset([1, 0]).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert everything(torch.from_numpy(GREY)).fingerprint == data.fingerprint
    wide, tall = (InMemoryImageStore(torch.from_numpy(GREY).view(20, 1, *shape)) for shape in ((4, 9), (9, 4)))
    assert wide.fingerprint != tall.fingerprint, "the same bytes"
    assert all(len(p) == 32 and int(p, 16) for p in prints)


def test_sizes_are_the_plain_statistics():
    data = everything((COLOUR, np.arange(20) % 3))
    sizes = data.sizes()
    unit = COLOUR.reshape(-1, 3) / 255
    assert {k: sizes[k] for k in ("n", "channels", "size", "classes")} == {"n": 20, "channels": 3, "size": 6, "classes": 3}
    np.testing.assert_allclose(sizes["mean"], unit.mean(0), rtol=1e-12)
    np.testing.assert_allclose(sizes["std"], unit.std(0), rtol=1e-12)
    assert all(isinstance(v, float) for v in (*sizes["mean"], *sizes["std"]))


def test_statistics_of_many_images_come_from_all_parts_of_the_data(monkeypatch):
    """Rows alternate between 0 and 200 and grow brighter: a sample at a fixed even step would see one kind only."""
    values = (np.arange(6000) % 2 * 200 + np.arange(6000) // 120).astype(np.uint8)
    data = Images(InMemoryImageStore(torch.from_numpy(values)[:, None, None, None].repeat(1, 1, 2, 2)), np.arange(6000))
    monkeypatch.setattr(images_module, "MAX_IMAGES_FOR_STATISTICS", 1000)
    sizes = data.sizes()
    assert sizes == data.sizes()
    assert sizes["mean"][0] == pytest.approx(values.mean() / 255, abs=0.03)
    assert sizes["std"][0] == pytest.approx((values / 255).std(), abs=0.03)
