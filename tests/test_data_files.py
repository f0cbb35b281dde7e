"""Images that stay in their files until they are read: whole, in windows, by worker processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from image_files import everything, noise, save
from PIL import Image
from torch.utils.data import DataLoader

import nearfar.data.images.image_folder as folder_module
from nearfar.core import UsageError
from nearfar.data import load_images
from nearfar.data.images.crop_decoding import set_jpeg_scale
from nearfar.data.images.decode import open_image


def test_read_from_files_equals_read_from_memory(tmp_path, monkeypatch):
    for i in range(5):
        save(noise(i, 20 + i, 30), tmp_path / f"{i % 2}" / f"{i}.png")
    held = load_images(tmp_path, image_size=16)
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 5 * 3 * 16 * 16 - 1)
    streamed = load_images(tmp_path, image_size=16)
    assert type(streamed.train.store).__name__ == "ImageFileStore"
    assert type(held.train.store).__name__ == "InMemoryImageStore"
    ids = [2, 0, 2]
    assert torch.equal(streamed.train.read(ids), held.train.read(ids))
    assert streamed.train.read([]).shape == (0, 3, 16, 16)
    assert streamed.train.sizes() == held.train.sizes()
    assert streamed.train.fingerprint == load_images(tmp_path, image_size=16).train.fingerprint
    assert streamed.test_ids == held.test_ids


def test_a_file_that_breaks_later_is_named(tmp_path, monkeypatch):
    for i in range(3):
        save(noise(i), tmp_path / f"{i}.png")
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 0)
    data = everything(tmp_path)
    (tmp_path / "1.png").unlink()
    with pytest.raises(UsageError, match=r"1\.png: No such file"):
        data.read([0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("start", "limit"), [("fork", 0), ("fork", 1 << 30), ("spawn", 0)])
def test_worker_processes_read_the_same_bytes(tmp_path, monkeypatch, start, limit):
    for i in range(6):
        save(noise(i, 12, 12), tmp_path / f"{i}.png")
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", limit)
    data = everything(tmp_path)
    loader = DataLoader(range(6), batch_size=2, collate_fn=data.read, num_workers=2, multiprocessing_context=start)  # type: ignore[arg-type]
    assert torch.equal(torch.cat(list(loader)), data.read(range(6)))


def test_pickled_images_read_the_same(tmp_path, monkeypatch):
    for i in range(3):
        save(noise(i), tmp_path / f"{i}.png")
    for limit in (0, 1 << 30):
        monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", limit)
        data = everything(tmp_path)
        copy = pickle.loads(pickle.dumps(data))
        assert torch.equal(copy.read([0, 2]), data.read([0, 2]))
        assert copy.fingerprint == data.fingerprint


@pytest.fixture
def streamed(monkeypatch):
    """Nothing fits into memory."""
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 0)


def smooth(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width] / 40
    return Image.fromarray((127 + 120 * np.stack([np.sin(x + y), np.cos(x), np.sin(2 * y)], -1)).astype(np.uint8))


WHOLE = (0.0, 0.0, 1.0, 1.0)


def windows(*rows) -> np.ndarray:
    """(n, v, 4) from rows of windows."""
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_windows_are_what_pillow_crops_and_scales(tmp_path, streamed, mode):
    draw = np.random.default_rng(0)
    originals = [noise(i, 90 + 7 * i, 120 - 9 * i).convert(mode) for i in range(4)]
    for i, image in enumerate(originals):
        save(image, tmp_path / f"{i}.png")
    data, ids, sizes = everything(tmp_path, image_size=32), [2, 0, 3, 2], [32, 11]
    low, high = draw.uniform(0, 0.5, (4, 2, 2)), draw.uniform(0.5, 1, (4, 2, 2))
    views = data.read_crops(ids, np.concatenate([low, high], -1), sizes)
    for v, size in enumerate(sizes):
        assert views[v].shape == (4, len(mode), size, size)
        for row, i in enumerate(ids):
            image = originals[i]
            (left, top), (right, bottom) = (np.rint(corner[row, v] * image.size).tolist() for corner in (low, high))
            expected = image.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BILINEAR)
            found = views[v][row].permute(1, 2, 0).squeeze(-1).numpy().astype(int)
            assert np.abs(found - np.asarray(expected)).max() <= 1


def test_a_window_too_narrow_for_a_pixel_still_shows_one(tmp_path, streamed):
    for i in range(2):
        save(noise(i, 5, 7), tmp_path / f"{i}.png")
    last = np.asarray(noise(0, 5, 7))[6, 4]
    (found,) = everything(tmp_path, image_size=4).read_crops([0], windows([(1.0, 1.0, 1.0, 1.0)]), [4])
    assert (found[0].permute(1, 2, 0).numpy() == last).all()


@pytest.mark.parametrize(("wide", "scale"), [(1.0, 4), (0.6, 2), (0.3, 1)])
def test_jpegs_are_decoded_no_larger_than_their_windows_need(tmp_path, streamed, wide, scale):
    """1800 x 1360 pixels; the shorter side of the window, 1360 * wide, must keep 2 * 150 of its pixels."""
    paths = [save(smooth(1800, 1360), tmp_path / f"{i}.jpg", quality=95) for i in range(2)]
    window = (0.1, 0.0, 0.1 + 0.9 * wide, wide)
    with open_image(paths[0]) as image:
        set_jpeg_scale(image, windows(window), [150])
        assert image.size == (1800 // scale, 1360 // scale)
    (found,) = everything(tmp_path, image_size=150).read_crops([0], windows([window]), [150])
    box = (180, 0, round(180 + 0.9 * wide * 1800), round(wide * 1360))
    expected = smooth(1800, 1360).crop(box).resize((150, 150), Image.Resampling.BILINEAR)
    assert np.abs(found[0].permute(1, 2, 0).numpy().astype(int) - np.asarray(expected)).mean() < 1.5


def test_the_smallest_window_decides_for_all_views(tmp_path):
    path = save(smooth(1600, 1600), tmp_path / "a.jpg")
    with open_image(path) as image:
        set_jpeg_scale(image, windows(WHOLE, (0.4, 0.4, 0.52, 0.6)), [100, 100])
        assert image.size == (1600, 1600)
    with open_image(path) as image:
        set_jpeg_scale(image, windows(WHOLE, (0.4, 0.4, 0.52, 0.6)), [100, 20])
        assert image.size == (400, 400)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("side", [60, 960])
def test_windows_lie_in_the_upright_image(tmp_path, streamed, orientation, side):
    """Red is the upper left quarter of what a viewer shows, 3/2 times as wide as high; large JPEGs are decoded smaller."""
    shown = Image.new("RGB", (side * 3 // 2, side), "blue")
    shown.paste((255, 0, 0), (0, 0, side * 3 // 4, side // 2))
    to_stored = [0, "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270"][
        orientation - 1
    ]
    stored = shown.transpose(Image.Transpose[to_stored]) if to_stored else shown
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("photo.jpg", "photo.png", "photo.webp"):
        save(stored, tmp_path / name, exif=exif, quality=95)
    data = everything(tmp_path, image_size=16)
    frames = data.get_original_sizes([0, 1, 2])
    assert frames is not None
    assert frames.tolist() == 3 * [[side, side * 3 // 2]]
    red, blue = data.read_crops([0, 1, 2], windows(*3 * [[(0.05, 0.05, 0.45, 0.45), (0.55, 0.05, 0.95, 0.95)]]), [16, 16])
    for views, colour in ((red, (255, 0, 0)), (blue, (0, 0, 255))):
        assert (views.int() - torch.tensor(colour)[:, None, None]).abs().max() < 16


def test_every_mode_shows_the_same_through_a_window(tmp_path, streamed):
    """What `read` shows of inks, 16 bits, palettes, transparency and animations is what the window of the whole shows."""
    size = (8, 8)
    palette = Image.new("P", size, 1)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    save(Image.new("CMYK", size, (0, 255, 255, 0)), tmp_path / "ink.jpeg", quality=95)
    save(Image.new("I;16", size, 0x8123), tmp_path / "deep.png")
    save(Image.new("LA", size, (100, 90)), tmp_path / "grey_alpha.png")
    save(Image.new("RGBA", size, (255, 0, 0, 51)), tmp_path / "thin.png")
    save(palette, tmp_path / "palette.gif")
    save(Image.new("RGB", size, "lime"), tmp_path / "film.gif", save_all=True, append_images=[Image.new("RGB", size, "blue")])
    data = everything(tmp_path)
    (found,) = data.read_crops(range(6), windows(*6 * [[WHOLE]]), [8])
    assert torch.equal(found, data.read(range(6)))
    assert len({tuple(v) for v in found[:, :, 4, 4].tolist()}) == 5, "both palette.gif and ink.jpeg are red, give or take"


def test_only_files_can_be_cut(tmp_path):
    for i in range(2):
        save(noise(i), tmp_path / f"{i}.png")
    held = everything(tmp_path)
    assert held.get_original_sizes([0, 1]) is None
    with pytest.raises(NotImplementedError, match="no files"):
        held.read_crops([0], windows([WHOLE]), [8])
