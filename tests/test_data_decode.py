"""Image files of every mode, orientation, size and kind of damage: what is decoded from them."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
import torch
from image_files import colours, everything, noise, save
from PIL import Image

from nearfar.core import UsageError
from nearfar.data import load_images


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


@pytest.mark.parametrize("value", [0, 9, 600])
def test_an_orientation_that_means_nothing_turns_nothing(tmp_path, value):
    exif = Image.Exif()
    exif[0x0112] = value
    for i in range(2):
        save(noise(i, 12, 12), tmp_path / f"{i}.png", exif=exif)
    np.testing.assert_array_equal(everything(tmp_path).read([1])[0].numpy(), np.asarray(noise(1, 12, 12)).transpose(2, 0, 1))


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
        load_images(tmp_path, on_error="skip")


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
        load_images(tmp_path)
    assert everything(tmp_path, on_error="skip").skipped == ("bomb.png",)


def test_only_the_formats_looked_for_are_opened(tmp_path):
    save(noise(0), tmp_path / "a.tiff").rename(tmp_path / "a.png")
    save(noise(1), tmp_path / "b.png")
    with pytest.raises(UsageError, match=r"a\.png: it is not a JPEG"):
        load_images(tmp_path)
