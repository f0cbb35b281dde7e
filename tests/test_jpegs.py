"""Training on image files that do not fit into memory: the views, the workers, the memory they take."""

from __future__ import annotations

import multiprocessing
import os
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import assert_same_tensors, stored
from image_files import everything, noise, save
from PIL import Image

import nearfar
import nearfar.data.images.image_folder as folder_module
from nearfar.core import Plan, RandomKey, UsageError
from nearfar.data import Images
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, Grayscale, ImageViews, PadCrop, simclr_views, swav_views
from nearfar.train.loader import PREFETCH_STEPS, StepDataset, iterate_batches

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def streamed(monkeypatch):
    """Nothing fits into memory."""
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 0)


def photo(seed: int, width: int, height: int) -> Image.Image:
    """Smooth shapes of random colors."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(6 * (draw.normal() * x + draw.normal() * y) + draw.uniform(0, 6)) for _ in range(3)]
    return Image.fromarray((127 + 120 * np.stack(waves, -1)).astype(np.uint8))


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("jpegs")
    draw = np.random.default_rng(0)
    for i in range(48):
        width, height = draw.integers(224, 501, 2)
        save(photo(i, width, height), folder / "ab"[i % 2] / f"{i:02}.jpg", quality=90)
    return folder


def steps_of(data: Images, similarity: ImageViews, batch: int, chunk: int | None = None) -> StepDataset:
    return StepDataset(data, similarity, Plan(len(data), batch, RandomKey(0)), RandomKey(0)("read"), chunk)


# --- the views


def test_views_cut_from_files_are_those_cropped_in_memory(tmp_path, monkeypatch):
    """With the same key: the same windows, flips and colors, but for the nearest whole pixels at the windows' edges."""
    for i in range(8):
        save(photo(i, 64, 64), tmp_path / f"{i}.png")
    files = everything(tmp_path)
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 1 << 30)
    held = everything(tmp_path)
    similarity = ImageViews.repeat(Compose(Crop(64), Flip(), ColorJitter(0.4, 0.4, 0.4, 0.1), Grayscale(prob=0.2)))
    rows, rng_key = Plan(8, 8, RandomKey(1)).get_rows(3), RandomKey(2)("views")

    def views(data: Images, rng_key: RandomKey) -> torch.Tensor:
        return torch.stack(list(similarity.view(similarity.read(data, rows, rng_key), rows, rng_key).values()))

    same = (views(files, rng_key) - views(held, rng_key)).abs()
    assert same.mean() < 0.02
    assert (views(files, rng_key) - views(held, rng_key("other"))).abs().mean() > 0.15


def test_windows_follow_the_shape_of_each_file():
    """On a wide and on a high image: where no side is cut, area and shape of the window are those asked for."""
    crop, slots = Crop(32, scale=(0.1, 0.3), ratio=(0.5, 2.0)), torch.arange(400)
    frames = torch.tensor([[300, 600], [600, 300]]).repeat(200, 1)
    boxes = crop.draw_boxes(slots, RandomKey(0), frames)
    share = boxes[:, 2:] - boxes[:, :2]
    pixels = share * frames.flip(1)
    assert ((share.prod(1) > 0.0999) & (share.prod(1) < 0.3001)).all()
    ratio = pixels[:, 0] / pixels[:, 1]
    assert ((ratio > 0.499) & (ratio < 2.001)).all()
    assert torch.equal(crop.draw_boxes(slots[7:9], RandomKey(0), frames[7:9]), boxes[7:9]), "a row's window is its own"
    assert (boxes >= -1e-6).all()
    assert (boxes <= 1 + 1e-6).all()


def test_nothing_is_cropped_twice(jpegs):
    data, similarity = everything(jpegs, image_size=48), ImageViews.repeat(Compose(Crop(48)))
    rows = Plan(len(data), 4, RandomKey(0)).get_rows(0)
    raw = similarity.read(data, rows, RandomKey(0))
    assert not torch.equal(raw["v0"], raw["v1"])
    torch.testing.assert_close(similarity.view(raw, rows, RandomKey(0))["v1"], raw["v1"] / 255, atol=1e-4, rtol=0)


def test_multi_crop_reads_each_view_at_its_own_size_and_a_later_crop_reads_squares(jpegs):
    data = everything(jpegs, image_size=64)
    rows = Plan(len(data), 4, RandomKey(0)).get_rows(0)
    raw = swav_views(64, small_crop_size=24, small_crops=3).read(data, rows, RandomKey(0))
    assert {k: tuple(v.shape) for k, v in raw.items()} == {f"v{i}": (4, 3, s, s) for i, s in enumerate((64, 64, 24, 24, 24))}
    late = ImageViews.repeat(Compose(Flip(), PadCrop(4)))
    raw = late.read(data, rows, RandomKey(0))
    assert torch.equal(raw["image"], data.read(rows.ids))
    assert late.view(raw, rows, RandomKey(0))["v1"].shape == (4, 3, 64, 64)


def test_what_is_read_depends_on_no_worker_chunk_or_rank(jpegs):
    data, similarity = everything(jpegs, image_size=96), simclr_views(96)
    plain = [raws for _, _, raws in iterate_batches(steps_of(data, similarity, 12), 0, 5, 0, CPU)]
    for workers, chunk in ((1, None), (2, None), (2, 5)):
        for (whole,), (_, _, parts) in zip(plain, iterate_batches(steps_of(data, similarity, 12, chunk), 0, 5, workers, CPU), strict=True):
            assert len(parts) == (3 if chunk else 1)
            for view in ("v0", "v1"):
                assert torch.equal(torch.cat([part[view] for part in parts]), whole[view])
    rows = Plan(len(data), 12, RandomKey(0)).get_rows(2)
    shares = [similarity.read(data, rows.select_rank_share(rank, 3), RandomKey(0)("read")) for rank in range(3)]
    assert torch.equal(torch.cat([share["v1"] for share in shares]), plain[2][0]["v1"])


# --- memory


def resident() -> float:
    """MB of the process and its children."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_is_flat_over_many_batches(jpegs, workers):
    """A batch is 0.9 MB, 60 MB were read in between: if one in three were kept, it would be seen. (An allocator settles only slowly: a
    worker may take some MB more before it stays where it is.)"""
    steps = steps_of(everything(jpegs, image_size=96), simclr_views(96), 16)
    taken = [resident() for _ in iterate_batches(steps, 0, 150, workers, CPU)]
    assert max(taken[120:]) - max(taken[40:80]) < 20, [round(mb) for mb in taken[::6]]


class Counted:
    """Data that count how many batches were asked for, in any process."""

    def __init__(self):
        self.count = multiprocessing.Value("i", 0)

    def __len__(self) -> int:
        return 1000

    def read(self, ids: np.ndarray) -> torch.Tensor:
        with self.count.get_lock():
            self.count.value += 1
        return torch.zeros(len(ids), 1, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_read_a_bounded_number_of_steps_ahead(workers):
    data = Counted()
    came = iterate_batches(steps_of(data, simclr_views(4), 10), 0, 60, workers, CPU)  # type: ignore[arg-type]
    ahead = []
    for t, _, _ in came:
        time.sleep(0.02)
        ahead.append(data.count.value - (t + 1))
    assert 0 < max(ahead) <= PREFETCH_STEPS * workers


# --- damage


def png_bomb() -> bytes:
    """A PNG header that claims 30,000 x 30,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda whole: whole[: len(whole) // 2], "truncated"),
        (lambda whole: b"", "the file is empty"),
        (lambda whole: b"no image at all", "it is not a JPEG, PNG, WebP, BMP or GIF image"),
        (lambda whole: png_bomb(), "decompression bomb"),
        (None, "No such file"),
    ],
)
def test_a_file_that_breaks_during_training_is_named(tmp_path, workers, damage, words):
    for i in range(4):
        save(noise(i, 100, 80), tmp_path / f"{i}.jpg")
    steps = steps_of(everything(tmp_path, image_size=32), simclr_views(32), 4)
    broken = tmp_path / "2.jpg"
    whole = broken.read_bytes()
    broken.unlink()
    if damage:
        broken.write_bytes(damage(whole))
    with pytest.raises(UsageError, match=rf"cannot read the image .*2\.jpg: .*{words}.*--on-error skip"):
        list(iterate_batches(steps, 0, 2, workers, CPU))


def test_strange_files_look_the_same_in_workers(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(photo(0, 90, 60), tmp_path / "turned.jpg", exif=exif)
    save(photo(1, 60, 90).convert("CMYK"), tmp_path / "ink.jpg")
    save(Image.new("I;16", (70, 50), 0x8123), tmp_path / "deep.png")
    save(photo(2, 40, 40), tmp_path / "film.gif", save_all=True, append_images=[photo(3, 40, 40)])
    steps = steps_of(everything(tmp_path, image_size=32), simclr_views(32), 4)
    (_, _, here), (_, _, there) = (next(iterate_batches(steps, 0, 1, workers, CPU)) for workers in (0, 1))
    assert torch.equal(here[0]["v0"], there[0]["v0"])
    assert torch.equal(here[0]["v1"], there[0]["v1"])


# --- the whole way


def test_a_run_on_files_is_the_same_with_and_without_workers(jpegs, tmp_path):
    settings = {"data": jpegs, "image_size": 128, "encoder": "convnet", "batch_size": 6, "steps": 2, "device": "cpu"}
    for workers in (0, 2):
        nearfar.fit("simclr", **settings, num_workers=workers, out=tmp_path / f"{workers}")
    assert_same_tensors(stored(tmp_path / "0"), stored(tmp_path / "2"))


def test_a_trained_model_encodes_files_by_name(jpegs, tmp_path):
    run = nearfar.fit("simclr", data=jpegs, image_size=32, batch_size=8, steps=1, out=tmp_path / "run", device="cpu")
    paths = sorted(jpegs.rglob("*.jpg"))
    whole = run.encode(jpegs)
    assert torch.allclose(run.encode(paths[5]), whole[5:6], atol=1e-5)
    assert torch.allclose(run.encode([str(paths[7]), str(paths[5])]), whole[[7, 5]], atol=1e-5)
    grey = save(photo(9, 50, 70).convert("L"), tmp_path / "grey.png")
    assert run.encode(grey).shape == whole[:1].shape, "gray as color"
    with pytest.raises(UsageError, match=r"nowhere\.jpg"):
        run.encode([jpegs / "nowhere.jpg"])
