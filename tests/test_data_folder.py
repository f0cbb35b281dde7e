"""Folders of images: real files of every kind, written by Pillow."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import nearfar.data.folder as folder_module
from nearfar.core import UsageError
from nearfar.data import open_data


def everything(folder: Path, **options):
    return open_data(folder, split=[], **options).train


def save(image: Image.Image, path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def noise(seed: int, width: int = 8, height: int = 8) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def colours(data) -> dict[str, list[int]]:
    """The central pixel of each image, by name."""
    pixels = data.read(range(len(data)))
    return {data.name(i): pixels[i, :, 4, 4].tolist() for i in range(len(data))}


@pytest.fixture
def broken_folder(tmp_path):
    for i in range(6):
        save(noise(i, 16, 16), tmp_path / f"{i}.png")
    whole = save(noise(9, 64, 64), tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2b.png").write_bytes(b"")
    (tmp_path / "text.gif").write_text("no image at all")
    return tmp_path


def test_every_mode_gives_the_colour_it_shows(tmp_path):
    size = (8, 8)
    red_palette = Image.new("P", size, 1)
    red_palette.putpalette([0, 0, 0, 255, 0, 0])
    save(Image.new("RGB", size, (10, 20, 30)), tmp_path / "rgb.png")
    save(Image.new("RGB", size, (10, 20, 30)), tmp_path / "rgb.bmp")
    save(Image.new("RGB", size, (10, 20, 30)), tmp_path / "rgb.WEBP", lossless=True)
    save(Image.new("L", size, 77), tmp_path / "grey.png")
    save(Image.new("1", size, 1), tmp_path / "white.png")
    save(Image.new("I;16", size, 0x8123), tmp_path / "deep.png")
    save(red_palette, tmp_path / "palette.png")
    save(red_palette, tmp_path / "palette.gif")
    save(red_palette, tmp_path / "hole.png", transparency=1)
    save(Image.new("RGBA", size, (255, 0, 0, 0)), tmp_path / "clear.png")
    save(Image.new("RGBA", size, (255, 0, 0, 51)), tmp_path / "thin.png")
    save(Image.new("LA", size, (100, 255)), tmp_path / "grey_alpha.png")
    save(Image.new("CMYK", size, (0, 255, 255, 0)), tmp_path / "ink.jpeg", quality=95)
    shown = colours(everything(tmp_path))
    assert {k: v for k, v in shown.items() if k != "ink.jpeg"} == {
        "rgb.png": [10, 20, 30],
        "rgb.bmp": [10, 20, 30],
        "rgb.WEBP": [10, 20, 30],
        "grey.png": [77, 77, 77],
        "white.png": [255, 255, 255],
        "deep.png": [0x81, 0x81, 0x81],
        "palette.png": [255, 0, 0],
        "palette.gif": [255, 0, 0],
        "hole.png": [255, 255, 255],
        "clear.png": [255, 255, 255],
        "thin.png": [255, 204, 204],
        "grey_alpha.png": [100, 100, 100],
    }
    np.testing.assert_allclose(shown["ink.jpeg"], [255, 0, 0], atol=6)


def test_animations_show_their_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    for name in ("a.gif", "b.png", "c.webp"):
        options = {"lossless": True} if name.endswith("webp") else {}
        save(frames[0], tmp_path / name, save_all=True, append_images=frames[1:], **options)
    assert colours(everything(tmp_path)) == {name: [255, 0, 0] for name in ("a.gif", "b.png", "c.webp")}


def test_grey_folders_keep_one_channel_until_a_colour_joins(tmp_path):
    save(Image.new("L", (8, 8), 7), tmp_path / "a.png")
    save(Image.new("I;16", (8, 8), 512), tmp_path / "b.png")
    save(Image.new("LA", (8, 8), (0, 0)), tmp_path / "c.png")
    grey = everything(tmp_path)
    assert grey.shape == (1, 8, 8)
    assert colours(grey) == {"a.png": [7], "b.png": [2], "c.png": [255]}
    save(noise(0), tmp_path / "z.png")
    assert everything(tmp_path).shape == (3, 8, 8)


def test_a_broken_colour_file_does_not_decide_about_the_others(tmp_path):
    for i in range(3):
        save(Image.new("L", (8, 8), i), tmp_path / f"{i}.png")
    whole = save(noise(1, 99, 99), tmp_path / "x.png").read_bytes()
    (tmp_path / "x.png").write_bytes(whole[:2000])
    assert everything(tmp_path, on_error="skip").shape == (1, 8, 8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(tmp_path, orientation):
    """A viewer undoes what the camera did: stored pixels are the inverse transposition of the shown ones."""
    shown = Image.new("RGB", (64, 64), "black")
    shown.paste((255, 0, 0), (0, 0, 32, 32))
    shown.paste((0, 0, 255), (32, 0, 64, 32))
    to_stored = {
        2: "FLIP_LEFT_RIGHT",
        3: "ROTATE_180",
        4: "FLIP_TOP_BOTTOM",
        5: "TRANSPOSE",
        6: "ROTATE_90",
        7: "TRANSVERSE",
        8: "ROTATE_270",
    }
    stored = shown.transpose(Image.Transpose[to_stored[orientation]]) if orientation > 1 else shown
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("photo.jpg", "photo.png", "photo.webp"):
        save(stored, tmp_path / name, exif=exif, quality=95)
    pixels = everything(tmp_path).read([0, 1, 2])
    for image in pixels.int():
        assert (image[:, 12, 12] - torch.tensor([255, 0, 0])).abs().max() < 12
        assert (image[:, 12, 52] - torch.tensor([0, 0, 255])).abs().max() < 12
        assert image[:, 52].max() < 12


def test_an_unreadable_exif_block_spoils_nothing(tmp_path):
    for i in range(2):
        save(Image.new("RGB", (8, 8), "red"), tmp_path / f"{i}.jpg", exif=b"Exif\0\0rubbish, not a TIFF header", quality=95)
    assert everything(tmp_path).read([0])[0, 0].min() > 240


def test_native_size_is_kept_bit_for_bit(tmp_path):
    originals = [noise(i, 20, 20) for i in range(3)]
    for i, image in enumerate(originals):
        save(image, tmp_path / f"{i}.png")
    data = everything(tmp_path)
    assert data.shape == (3, 20, 20)
    expected = np.stack([np.asarray(image).transpose(2, 0, 1) for image in originals])
    np.testing.assert_array_equal(data.read([0, 1, 2]).numpy(), expected)


def test_mixed_sizes_become_64_and_lengthwise_images_lose_their_ends(tmp_path):
    wide = Image.new("RGB", (300, 100), "red")
    wide.paste((0, 255, 0), (100, 0, 200, 100))
    save(wide, tmp_path / "wide.png")
    save(wide.transpose(Image.Transpose.ROTATE_90), tmp_path / "tall.png")
    data = everything(tmp_path)
    assert data.shape == (3, 64, 64)
    inside = data.read([0, 1])[:, :, 4:-4, 4:-4]  # the filter reaches over the edge of the crop
    assert (inside == torch.tensor([0, 255, 0], dtype=torch.uint8)[:, None, None]).all()
    save(noise(0, 30, 20), tmp_path / "sub" / "a.png")
    save(noise(0, 30, 20), tmp_path / "sub" / "b.png")
    assert everything(tmp_path / "sub").shape == (3, 64, 64), "equal but not square"
    assert everything(tmp_path, image_size=12).shape == (3, 12, 12)


@pytest.mark.parametrize("size", [32, 96])
def test_scaling_agrees_with_pillow_resize_then_crop(tmp_path, size):
    """The textbook order: scale the shorter side, then crop; large JPEGs differ by the decoder's own scaling only."""
    y, x = np.mgrid[0:480, 0:720] / 100
    waves = np.stack([np.sin(x + 2 * y), np.cos(3 * x), np.sin(size * x / 4)], -1)
    image = Image.fromarray((127 + 120 * waves).astype(np.uint8))
    save(image, tmp_path / "a.jpg", quality=95, subsampling=0)
    save(image, tmp_path / "b.png")
    scaled, left = image.resize((size * 3 // 2, size), Image.Resampling.BICUBIC), size // 4
    expected = np.asarray(scaled.crop((left, 0, left + size, size))).transpose(2, 0, 1).astype(int)
    difference = np.abs(everything(tmp_path, image_size=size).read([0, 1]).numpy().astype(int) - expected)
    assert difference.max() <= 4
    assert difference.mean() < 0.6


def test_running_out_of_memory_is_not_a_broken_file(tmp_path, monkeypatch):
    for i in range(2):
        save(noise(i), tmp_path / f"{i}.png")

    def exhausted(*args, **options):
        raise MemoryError

    monkeypatch.setattr(Image, "open", exhausted)
    with pytest.raises(MemoryError):
        open_data(tmp_path, on_error="skip")


def test_first_folder_level_is_the_label(tmp_path):
    for i, place in enumerate(["dog/a.png", "cat/deep/er/b.png", "cat/c.png", ".hidden/d.png", "cat/._c.png"]):
        save(noise(i), tmp_path / place)
    data = everything(tmp_path)
    assert data.classes == ("cat", "dog")
    assert [data.name(i) for i in range(len(data))] == ["cat/c.png", "cat/deep/er/b.png", "dog/a.png"]
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1]
    assert data.labels.dtype == np.int64


def test_a_file_beside_the_folders_or_a_single_folder_means_no_labels(tmp_path):
    save(noise(0), tmp_path / "all" / "a.png")
    save(noise(1), tmp_path / "all" / "b.png")
    assert everything(tmp_path).labels is None
    save(noise(2), tmp_path / "more" / "c.png")
    assert everything(tmp_path).classes == ("all", "more")
    save(noise(3), tmp_path / "stray.png")
    assert (everything(tmp_path).labels, everything(tmp_path).classes) == (None, ())


@pytest.mark.parametrize("test_name", ["test", "val", "valid"])
def test_train_and_test_folders_are_splits(tmp_path, test_name):
    for i, place in enumerate(["train/x/a.png", "train/y/b.png", "train/y/c.png", f"{test_name}/y/d.png"]):
        save(noise(i), tmp_path / place)
    splits = open_data(tmp_path)
    assert splits.test is not None
    assert splits.test_ids is None
    assert [splits.train.name(i) for i in range(3)] == ["train/x/a.png", "train/y/b.png", "train/y/c.png"]
    assert (splits.train.classes, splits.test.classes) == (("x", "y"), ("x", "y"))
    assert splits.test.labels is not None
    assert splits.test.labels.tolist() == [1], "numbered together with the training classes"


def test_val_is_left_aside_beside_test(tmp_path):
    for i, place in enumerate(["train/a.png", "train/b.png", "test/c.png", "val/d.png"]):
        save(noise(i), tmp_path / place)
    splits = open_data(tmp_path)
    assert splits.test is not None
    assert (len(splits.train), splits.test.name(0), len(splits.test)) == (2, "test/c.png", 1)


def test_train_alone_is_looked_into_and_train_among_vehicles_is_a_class(tmp_path):
    for i, place in enumerate(["train/x/a.png", "train/y/b.png"]):
        save(noise(i), tmp_path / place)
    assert everything(tmp_path).classes == ("x", "y")
    save(noise(3), tmp_path / "car" / "c.png")
    assert everything(tmp_path).classes == ("car", "train")


def test_stop_names_the_broken_file_and_the_way_out(broken_folder):
    with pytest.raises(UsageError, match=r"2b\.png: the file is empty.*--on-error skip"):
        open_data(broken_folder)
    (broken_folder / "2b.png").unlink()
    with pytest.raises(UsageError, match=r"text\.gif: it is not a JPEG, PNG, WebP, BMP or GIF image"):
        open_data(broken_folder)
    (broken_folder / "text.gif").unlink()
    with pytest.raises(UsageError, match=r"cut\.jpg: .*truncated.*--on-error skip"):
        open_data(broken_folder)


def test_skip_leaves_broken_files_out_and_counts_them(broken_folder):
    first, again = everything(broken_folder, on_error="skip"), everything(broken_folder, on_error="skip")
    assert first.skipped == again.skipped == ("2b.png", "cut.jpg", "text.gif")
    assert [first.name(i) for i in range(len(first))] == [f"{i}.png" for i in range(6)]
    assert first.fingerprint == again.fingerprint
    np.testing.assert_array_equal(first.read([3])[0].numpy(), np.asarray(noise(3, 16, 16)).transpose(2, 0, 1))


def test_nothing_but_broken_files(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(b"\x89PNG rubbish")
    with pytest.raises(UsageError, match=r"none of 3 image files can be read; the first is .*0\.png"):
        open_data(tmp_path, on_error="skip")


def test_decompression_bombs_are_refused(tmp_path):
    """A PNG header that claims 30,000 x 30,000 pixels: Pillow's limit stands, and the file is named."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    save(noise(0), tmp_path / "a.png")
    save(noise(1), tmp_path / "b.png")
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(UsageError, match=r"bomb\.png: .*decompression bomb"):
        open_data(tmp_path)
    assert everything(tmp_path, on_error="skip").skipped == ("bomb.png",)


def test_only_the_formats_looked_for_are_opened(tmp_path):
    save(noise(0), tmp_path / "a.tiff").rename(tmp_path / "a.png")
    save(noise(1), tmp_path / "b.png")
    with pytest.raises(UsageError, match=r"a\.png: it is not a JPEG"):
        open_data(tmp_path)


def test_folders_without_images_say_what_they_hold(tmp_path):
    with pytest.raises(UsageError, match=r"looked for \.bmp \.gif \.jpeg \.jpg \.png \.webp, found nothing: the folder is empty"):
        open_data(tmp_path)
    for name in ("a.txt", "b.txt", "c.csv", "LICENSE"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=r"found 2 \.txt, 1 without extension, 1 \.csv"):
        open_data(tmp_path)


def test_one_image_is_not_enough(tmp_path):
    path = save(noise(0), tmp_path / "a.png")
    with pytest.raises(UsageError, match="has 1 image to learn from; at least 2 are needed"):
        open_data(tmp_path)
    with pytest.raises(UsageError, match="is a single image; at least 2 are needed"):
        open_data(path)


def test_fingerprint_sees_size_name_and_scale_but_not_time(tmp_path):
    for i in range(4):
        save(noise(i), tmp_path / f"{i}.png")
    before = everything(tmp_path).fingerprint
    os.utime(tmp_path / "0.png", (1, 1))
    assert everything(tmp_path).fingerprint == before
    assert everything(tmp_path, image_size=4).fingerprint != before
    (tmp_path / "0.png").rename(tmp_path / "00.png")
    assert everything(tmp_path).fingerprint != before
    (tmp_path / "00.png").rename(tmp_path / "0.png")
    assert everything(tmp_path).fingerprint == before
    save(Image.new("RGB", (8, 8)), tmp_path / "0.png")
    assert everything(tmp_path).fingerprint != before


def test_read_from_files_equals_read_from_memory(tmp_path, monkeypatch):
    for i in range(5):
        save(noise(i, 20 + i, 30), tmp_path / f"{i % 2}" / f"{i}.png")
    held = open_data(tmp_path, image_size=16)
    monkeypatch.setattr(folder_module, "MEMORY_LIMIT", 5 * 3 * 16 * 16 - 1)
    streamed = open_data(tmp_path, image_size=16)
    assert type(streamed.train.store).__name__ == "Files"
    assert type(held.train.store).__name__ == "InMemory"
    ids = [2, 0, 2]
    assert torch.equal(streamed.train.read(ids), held.train.read(ids))
    assert streamed.train.read([]).shape == (0, 3, 16, 16)
    assert streamed.train.sizes() == held.train.sizes()
    assert streamed.train.fingerprint == open_data(tmp_path, image_size=16).train.fingerprint
    assert streamed.test_ids == held.test_ids


def test_a_file_that_breaks_later_is_named(tmp_path, monkeypatch):
    for i in range(3):
        save(noise(i), tmp_path / f"{i}.png")
    monkeypatch.setattr(folder_module, "MEMORY_LIMIT", 0)
    data = everything(tmp_path)
    (tmp_path / "1.png").unlink()
    with pytest.raises(UsageError, match=r"1\.png: No such file"):
        data.read([0, 1])


@pytest.mark.parametrize(("start", "limit"), [("fork", 0), ("fork", 1 << 30), ("spawn", 0)])
def test_worker_processes_read_the_same_bytes(tmp_path, monkeypatch, start, limit):
    for i in range(6):
        save(noise(i, 12, 12), tmp_path / f"{i}.png")
    monkeypatch.setattr(folder_module, "MEMORY_LIMIT", limit)
    data = everything(tmp_path)
    loader = DataLoader(range(6), batch_size=2, collate_fn=data.read, num_workers=2, multiprocessing_context=start)  # type: ignore[arg-type]
    assert torch.equal(torch.cat(list(loader)), data.read(range(6)))


def test_pickled_images_read_the_same(tmp_path, monkeypatch):
    for i in range(3):
        save(noise(i), tmp_path / f"{i}.png")
    for limit in (0, 1 << 30):
        monkeypatch.setattr(folder_module, "MEMORY_LIMIT", limit)
        data = everything(tmp_path)
        copy = pickle.loads(pickle.dumps(data))
        assert torch.equal(copy.read([0, 2]), data.read([0, 2]))
        assert copy.fingerprint == data.fingerprint


def test_progress_counts_the_files_of_each_pass(tmp_path):
    for i in range(5):
        save(noise(i), tmp_path / f"{i}.png")
    calls = []
    open_data(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == 2 * [(i, 5) for i in range(1, 6)]


def test_links_are_followed_but_not_in_circles(tmp_path):
    save(noise(0), tmp_path / "elsewhere" / "a.png")
    save(noise(1), tmp_path / "data" / "b.png")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    data = everything(tmp_path / "data")
    assert [data.name(i) for i in range(len(data))] == ["b.png", "link/a.png"]


def test_a_pipe_with_an_image_name_is_no_image(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for i in range(2):
        save(noise(i), tmp_path / f"{i}.png")
    assert len(everything(tmp_path)) == 2
