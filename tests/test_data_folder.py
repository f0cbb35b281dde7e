"""Folders and lists of image files: labels, splits, broken files, fingerprints."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
import torch
from image_files import everything, noise, save
from PIL import Image

import nearfar.data.images.image_folder as folder_module
from nearfar.core import UsageError
from nearfar.data import load_all_images, load_images
from nearfar.data.common.image_stores import fingerprint_file


@pytest.fixture
def broken_folder(tmp_path):
    for i in range(6):
        save(noise(i, 16, 16), tmp_path / f"{i}.png")
    whole = save(noise(9, 64, 64), tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2b.png").write_bytes(b"")
    (tmp_path / "text.gif").write_text("no image at all")
    return tmp_path


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
    splits = load_images(tmp_path)
    assert splits.test is not None
    assert splits.test_ids is None
    assert [splits.train.name(i) for i in range(3)] == ["train/x/a.png", "train/y/b.png", "train/y/c.png"]
    assert (splits.train.classes, splits.test.classes) == (("x", "y"), ("x", "y"))
    assert splits.test.labels is not None
    assert splits.test.labels.tolist() == [1], "numbered together with the training classes"


def test_val_is_left_aside_beside_test(tmp_path):
    for i, place in enumerate(["train/a.png", "train/b.png", "test/c.png", "val/d.png"]):
        save(noise(i), tmp_path / place)
    splits = load_images(tmp_path)
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
        load_images(broken_folder)
    (broken_folder / "2b.png").unlink()
    with pytest.raises(UsageError, match=r"text\.gif: it is not a JPEG, PNG, WebP, BMP or GIF image"):
        load_images(broken_folder)
    (broken_folder / "text.gif").unlink()
    with pytest.raises(UsageError, match=r"cut\.jpg: .*truncated.*--on-error skip"):
        load_images(broken_folder)


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
        load_images(tmp_path, on_error="skip")


def test_folders_without_images_say_what_they_hold(tmp_path):
    with pytest.raises(UsageError, match=r"looked for \.bmp \.gif \.jpeg \.jpg \.png \.webp, found nothing: the folder is empty"):
        load_images(tmp_path)
    for name in ("a.txt", "b.txt", "c.csv", "LICENSE"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=r"found 2 \.txt, 1 without extension, 1 \.csv"):
        load_images(tmp_path)


def test_one_image_is_not_enough(tmp_path):
    path = save(noise(0), tmp_path / "a.png")
    with pytest.raises(UsageError, match="has 1 image to learn from; at least 2 are needed"):
        load_images(tmp_path)
    with pytest.raises(UsageError, match=r"a\.png has 1 image to learn from; at least 2 are needed"):
        load_images(path)


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


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_fingerprint_of_files_sees_other_bytes_of_the_same_size(tmp_path, monkeypatch, place):
    """Of files that are never held in memory no more than a sample is hashed; a turned or replaced image is in it."""
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 0)
    for i in range(2):
        save(noise(i, 80, 80), tmp_path / f"{i}.bmp")
    before = everything(tmp_path).fingerprint
    whole = bytearray((tmp_path / "0.bmp").read_bytes())
    assert len(whole) > 15_000
    at = 54 + int(place * (len(whole) - 55))  # behind the header of a BMP
    whole[at] ^= 255
    (tmp_path / "0.bmp").write_bytes(whole)
    assert everything(tmp_path).fingerprint != before
    whole[at] ^= 255
    (tmp_path / "0.bmp").write_bytes(whole)
    assert everything(tmp_path).fingerprint == before, "a copy of the same bytes at another time"


def test_a_mark_costs_three_reads_whatever_the_size(tmp_path):
    """Three kilobytes of a sparse file of 4 GB."""
    for name, size in (("huge", 1 << 32), ("tiny", 5), ("empty", 0)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    began = time.perf_counter()
    marks = [fingerprint_file(tmp_path / name) for name in ("huge", "tiny", "empty")]
    assert time.perf_counter() - began < 0.5
    assert [mark.split()[0] for mark in marks] == [str(1 << 32), "5", "0"]
    assert len(set(marks)) == 3


def test_files_by_name_keep_their_order_and_need_no_folder(tmp_path, monkeypatch):
    paths = [save(noise(i, 12, 12), tmp_path / f"{'ab'[i % 2]}" / f"{i}.png") for i in range(4)]
    monkeypatch.chdir(tmp_path)
    for listed in (paths[::-1], [str(p.relative_to(tmp_path)) for p in paths[::-1]], tuple(paths[::-1])):
        data = everything(listed)
        assert (data.labels, data.shape, data.source) == (None, (3, 12, 12), "list of 4 files")
        assert [data.name(i) for i in range(4)] == [str(p) for p in listed]
        np.testing.assert_array_equal(data.read([1])[0].numpy(), np.asarray(noise(2, 12, 12)).transpose(2, 0, 1))
    assert len(everything([paths[0], paths[0], paths[1]])) == 3, "named twice, there twice"
    one = load_all_images(paths[3]).train
    assert torch.equal(one.read([0]), everything(paths).read([3]))


def test_a_file_by_name_that_is_no_image_is_named(tmp_path):
    paths = [save(noise(i), tmp_path / f"{i}.png") for i in range(3)]
    with pytest.raises(UsageError, match=r"nowhere\.png: No such file"):
        load_images([*paths, tmp_path / "nowhere.png"])
    with pytest.raises(UsageError, match=f"cannot read the image {tmp_path}: Is a directory"):
        load_images([*paths, tmp_path])
    assert everything([*paths, tmp_path / "nowhere.png"], on_error="skip").skipped == (str(tmp_path / "nowhere.png"),)


def test_progress_counts_the_files_of_each_pass(tmp_path):
    for i in range(5):
        save(noise(i), tmp_path / f"{i}.png")
    calls = []
    load_images(tmp_path, progress=lambda done, total: calls.append((done, total)))
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
