"""Published layouts, written here byte by byte, and the real files where they are at hand."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from nearfar.core import UsageError
from nearfar.data import load_images


def random_bytes(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def real(data_folder: Path, name: str) -> Path:
    if not (data_folder / name).is_dir():
        pytest.skip(f"no {name} in {data_folder} (set NEARFAR_DATA)")
    return data_folder / name


# --- CIFAR-10 ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cifar(tmp_path):
    """Four images a file; the first byte of each record is the label."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n")
    for i, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        records = random_bytes(i, 4, 3073)
        records[:, 0] = [0, 9, i, 3]
        (folder / name).write_bytes(records.tobytes())
    return folder


def test_cifar_round_trip(cifar):
    splits = load_images(cifar)
    assert splits.test is not None
    assert (len(splits.train), len(splits.test), splits.train.shape, splits.test_ids) == (20, 4, (3, 32, 32), None)
    record = (cifar / "data_batch_3.bin").read_bytes()[3073 : 2 * 3073]
    assert splits.train.read([9])[0].numpy().tobytes() == record[1:]
    assert splits.train.labels is not None
    assert splits.train.labels[:8].tolist() == [0, 9, 0, 3, 0, 9, 1, 3]
    assert (splits.train.classes[3], splits.test.classes[9]) == ("cat", "truck")
    assert load_images(cifar.parent).train.fingerprint == splits.train.fingerprint, "the folder around it will do"


def test_cifar_without_names_numbers_its_classes(cifar):
    (cifar / "batches.meta.txt").unlink()
    assert load_images(cifar).train.classes == tuple("0123456789")


def test_truncated_cifar_names_file_and_bytes(cifar):
    path = cifar / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"data_batch_2\.bin holds 12,291 bytes, expected a multiple of 3073 such as 12,292"):
        load_images(cifar)


def test_missing_cifar_file_is_named(cifar):
    (cifar / "data_batch_4.bin").unlink()
    with pytest.raises(UsageError, match=r"cannot read .*data_batch_4\.bin: No such file"):
        load_images(cifar)


def test_cifar_label_out_of_range(cifar):
    path = cifar / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(UsageError, match=r"test_batch\.bin, image 0: its label is 10, but there are 10 classes"):
        load_images(cifar)


def test_cifar_pickles_are_refused(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}")
    with pytest.raises(UsageError, match="pickles, which nearfar does not open: use its binary version"):
        load_images(tmp_path)


def test_real_cifar(data_folder):
    splits = load_images(real(data_folder, "cifar10"))
    assert splits.test is not None
    assert splits.train.labels is not None
    assert (len(splits.train), len(splits.test)) == (50_000, 10_000)
    assert np.bincount(splits.train.labels).tolist() == [5000] * 10
    assert splits.train.classes[:2] == ("airplane", "automobile")
    sizes = splits.train.sizes()
    np.testing.assert_allclose(sizes["mean"], [0.4914, 0.4822, 0.4465], atol=2e-3)
    np.testing.assert_allclose(sizes["std"], [0.2470, 0.2435, 0.2616], atol=2e-3)


# --- MNIST's idx ------------------------------------------------------------------------------------------------


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(folder: Path, mark: str = "-", end: str = "") -> tuple[np.ndarray, np.ndarray]:
    pack = gzip.compress if end else bytes
    images, labels = random_bytes(1, 12, 5, 5), np.arange(12, dtype=np.uint8) % 3
    for part, rows in (("train", slice(0, 9)), ("t10k", slice(9, 12))):
        (folder / f"{part}-images{mark}idx3-ubyte{end}").write_bytes(pack(idx(images[rows])))
        (folder / f"{part}-labels{mark}idx1-ubyte{end}").write_bytes(pack(idx(labels[rows])))
    return images, labels


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_round_trip(tmp_path, mark, end):
    images, labels = write_idx(tmp_path, mark, end)
    splits = load_images(tmp_path)
    assert splits.test is not None
    assert splits.train.labels is not None
    np.testing.assert_array_equal(splits.train.read(range(9)).numpy()[:, 0], images[:9])
    np.testing.assert_array_equal(splits.test.read(range(3)).numpy()[:, 0], images[9:])
    np.testing.assert_array_equal(splits.train.labels, labels[:9])
    assert (splits.train.classes, splits.train.shape, splits.train.name(8)) == (("0", "1", "2"), (1, 5, 5), "row 8")


def test_idx_without_labels_or_test_files(tmp_path):
    write_idx(tmp_path)
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).unlink()
    splits = load_images(tmp_path)
    assert splits.train.labels is None
    assert splits.test is not None
    assert len(splits.train) + len(splits.test) == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-10], r"holds 231 bytes, expected 241 for the shape \(9, 5, 5\)"),
        (lambda b: b + b"x", "holds 242 bytes, expected 241"),
        (lambda b: b[:6], "holds 6 bytes, expected"),
        (lambda b: b"\0\0\x0d\x03" + b[4:], "00 00 0d 03 instead of 00 00 08 03"),
        (lambda b: b"", "is not an idx file"),
    ],
)
def test_damaged_idx_names_file_and_bytes(tmp_path, change, message):
    write_idx(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UsageError, match=f"train-images-idx3-ubyte .*{message}"):
        load_images(tmp_path)


def test_truncated_gzip_is_named(tmp_path):
    write_idx(tmp_path, end=".gz")
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"cannot unpack .*t10k-images-idx3-ubyte\.gz, \d+ bytes"):
        load_images(tmp_path)


def test_idx_labels_of_another_length(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(8, dtype=np.uint8)))
    with pytest.raises(UsageError, match="has 9 images but 8 labels"):
        load_images(tmp_path)


@pytest.mark.parametrize(("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_real_idx(data_folder, name, mean, std):
    splits = load_images(real(data_folder, name))
    assert splits.test is not None
    assert (len(splits.train), len(splits.test), splits.train.shape) == (60_000, 10_000, (1, 28, 28))
    sizes = splits.train.sizes()
    assert sizes["mean"] == pytest.approx([mean], abs=2e-3), "a regular step over MNIST would give 0.123"
    assert sizes["std"] == pytest.approx([std], abs=2e-3)
    assert sizes["classes"] == 10


# --- numpy ------------------------------------------------------------------------------------------------------


def test_npy_round_trip(tmp_path):
    images = random_bytes(0, 10, 6, 6, 3)
    np.save(tmp_path / "images.npy", images)
    data = load_images(tmp_path / "images.npy", test_ids=[]).train
    np.testing.assert_array_equal(data.read(range(10)).numpy(), images.transpose(0, 3, 1, 2))
    assert (data.labels, data.source) == (None, str(tmp_path / "images.npy"))


@pytest.mark.parametrize(
    "keys", [("x", "y"), ("images", "labels"), ("X_train", "y_train"), ("train_images", "train_labels")]
)  # fmt: skip
def test_npz_keys(tmp_path, keys):
    arrays: dict = {keys[0]: random_bytes(0, 10, 6, 6), keys[1]: np.array(["b", "a"] * 5)}
    np.savez(tmp_path / "d.npz", **arrays)
    data = load_images(tmp_path / "d.npz", test_ids=[]).train
    assert data.labels is not None
    assert (data.classes, data.labels[:3].tolist(), data.shape) == (("a", "b"), [1, 0, 1], (1, 6, 6))


def test_npz_with_its_own_split_numbers_classes_together(tmp_path):
    arrays = {"x_train": random_bytes(0, 4, 6, 6), "y_train": [[5], [7], [5], [7]], "x_test": random_bytes(1, 2, 6, 6), "y_test": [7, 9]}
    np.savez_compressed(tmp_path / "d.npz", **arrays)
    splits = load_images(tmp_path / "d.npz")
    assert splits.test is not None
    assert splits.train.labels is not None
    assert splits.test.labels is not None
    assert splits.train.classes == ("5", "7", "9")
    assert (splits.train.labels.tolist(), splits.test.labels.tolist()) == ([0, 1, 0, 1], [1, 2])


def test_npz_without_a_known_key_lists_what_is_there(tmp_path):
    np.savez(tmp_path / "d.npz", pictures=random_bytes(0, 4, 6, 6), size=3)
    with pytest.raises(UsageError, match="looked for the keys x, images, x_train, train_images, found pictures, size"):
        load_images(tmp_path / "d.npz")


def test_npz_labels_of_another_length(tmp_path):
    np.savez(tmp_path / "d.npz", x=random_bytes(0, 4, 6, 6), y=[1, 2, 3])
    with pytest.raises(UsageError, match=r"d\.npz, array 'x', has 4 images but 3 labels"):
        load_images(tmp_path / "d.npz")


class Loaded:
    """Raises when unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["d.npy", "d.npz"])
def test_object_arrays_are_refused_unopened(tmp_path, name):
    objects = np.array([Loaded(), Loaded()], dtype=object)
    np.save(tmp_path / name, objects, allow_pickle=True) if name.endswith("npy") else np.savez(tmp_path / name, x=objects)
    with pytest.raises(UsageError, match="it holds Python objects, not plain numbers"):
        load_images(tmp_path / name)


@pytest.mark.parametrize(("name", "message"), [("d.npy", "is not a numpy file"), ("d.npz", "cannot read")])
@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"PK\x03\x04 cut off"])
def test_rubbish_numpy_files(tmp_path, name, message, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_images(tmp_path / name)


@pytest.mark.parametrize("compress", [False, True])
def test_truncated_numpy_files(tmp_path, compress):
    np.save(tmp_path / "d.npy", random_bytes(0, 10, 6, 6))
    (np.savez_compressed if compress else np.savez)(tmp_path / "d.npz", x=random_bytes(0, 10, 6, 6))
    for name in ("d.npy", "d.npz"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(UsageError, match=f"cannot read .*{name}"):
            load_images(path)
