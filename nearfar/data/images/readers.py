"""Readers of CIFAR-10's binary files, MNIST's idx files, and NumPy's .npy and .npz."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions, as_label_array, as_pixels, build_images, encode_labels
from nearfar.data.common.splits import Splits

_CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR_RECORD = 1 + 3 * 32 * 32

_NPZ_IMAGES = {"train": ("x", "images", "x_train", "train_images"), "test": ("x_test", "test_images", "x_val", "val_images")}
_NPZ_LABELS = {"train": ("y", "labels", "y_train", "train_labels"), "test": ("y_test", "test_labels", "y_val", "val_labels")}


def find_cifar_folder(folder: Path) -> Path | None:
    """Return the folder of CIFAR-10's binary files, or None.

    The files lie in `folder`, or in the sub-folder to which the archive unpacks.

    Raises:
        UsageError: The folder holds CIFAR-10 as Python pickles, which are never opened.
    """
    pickles = next((f for f in (folder, folder / "cifar-10-batches-py") if (f / "data_batch_1").is_file()), None)
    if pickles:
        raise UsageError(
            f"{pickles} holds CIFAR-10 as Python pickles, which nearfar does not open: use its binary version (data_batch_1.bin, …)"
        )
    return next((f for f in (folder, folder / "cifar-10-batches-bin") if any((f / b).is_file() for b in _CIFAR_TRAIN)), None)


def read_cifar(folder: Path, options: ImageReadOptions, source: str) -> Splits:
    """Read the binary version of CIFAR-10.

    Five training files and `test_batch.bin` hold records (label, 3 x 32 x 32 bytes). `batches.meta.txt` names
    the classes, one on each line.

    Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    names = folder / "batches.meta.txt"
    classes = tuple(_bytes(names).decode().split()) if names.is_file() else tuple(str(i) for i in range(10))
    train, test = ([_cifar_records(folder / f, len(classes)) for f in files] for files in (_CIFAR_TRAIN, ("test_batch.bin",)))

    def part(files: list[np.ndarray]):
        records = np.concatenate(files)
        pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
        return build_images(pixels, options, source, records[:, 0].astype(np.int64), classes)

    return Splits(part(train), part(test))


def _cifar_records(path: Path, classes: int) -> UInt8[np.ndarray, "n record"]:
    data = _bytes(path)
    if not data or len(data) % _CIFAR_RECORD:
        whole = (len(data) // _CIFAR_RECORD + 1) * _CIFAR_RECORD
        raise UsageError(
            f"{path} holds {len(data):,} bytes, expected a multiple of {_CIFAR_RECORD} such as {whole:,} "
            f"(the original: {10_000 * _CIFAR_RECORD:,}): an incomplete download?"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_RECORD)
    wrong = np.flatnonzero(records[:, 0] >= classes)
    if wrong.size:
        raise UsageError(f"{path}, image {wrong[0]}: its label is {records[wrong[0], 0]}, but there are {classes} classes")
    return records


def find_idx_folder(folder: Path) -> Path | None:
    """Return the folder if it holds idx files, else None."""
    return folder if _idx_file(folder, "train", "images") else None


def read_idx(folder: Path, options: ImageReadOptions, source: str) -> Splits:
    """Read idx files, the format of MNIST and Fashion-MNIST.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and `t10k-…`. A dot may replace the
    second hyphen, and each file may end in .gz. Labels and test files may be missing.

    Reference: LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, 1998.
    """
    images, labels = {}, {}
    for part in ("train", "t10k"):
        if image_file := _idx_file(folder, part, "images"):
            images[part] = torch.from_numpy(_idx_values(image_file, 3).copy())[:, None]
            label_file = _idx_file(folder, part, "labels")
            labels[part] = as_label_array(_idx_values(label_file, 1), len(images[part]), str(image_file)) if label_file else None
    coded, classes = encode_labels(*labels.values())
    parts = [build_images(p, options, source, y, classes) for p, y in zip(images.values(), coded, strict=True)]
    return Splits(parts[0], parts[1] if len(parts) == 2 else None)


def _idx_file(folder: Path, part: str, kind: str) -> Path | None:
    axes = {"images": 3, "labels": 1}[kind]
    names = (f"{part}-{kind}{mark}idx{axes}-ubyte{end}" for mark in "-." for end in ("", ".gz"))
    return next((folder / n for n in names if (folder / n).is_file()), None)


def _idx_values(path: Path, axes: int) -> UInt8[np.ndarray, "..."]:
    """Read the values of an idx file with this number of axes.

    The file holds 0, 0, 8 (unsigned bytes), the number of axes, their lengths as big-endian 32 bit integers,
    and the values.
    """
    data, start = _bytes(path), 4 + 4 * axes
    magic = bytes((0, 0, 8, axes))
    if data[:4] != magic:
        raise UsageError(f"{path} is not an idx file of {axes} axes of bytes: it begins {data[:4].hex(' ')} instead of {magic.hex(' ')}")
    shape = struct.unpack(f">{axes}I", data[4:start].ljust(4 * axes, b"\0"))
    expected = start + math.prod(shape)
    if len(data) != expected:
        raise UsageError(f"{path} holds {len(data):,} bytes, expected {expected:,} for the shape {shape}: an incomplete download?")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise UsageError(f"cannot unpack {path}, {path.stat().st_size:,} bytes: {e}. An incomplete download?") from e
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e


def read_numpy(path: Path, options: ImageReadOptions, source: str) -> Splits:
    """Read images from a .npy or .npz file.

    A .npy holds images. An .npz has these keys (in any case; the first that exists is used):

        x, images, x_train, train_images               images
        y, labels, y_train, train_labels               their labels, if any
        x_test, test_images, x_val, val_images         images of the test split, if any
        y_test, test_labels, y_val, val_labels         their labels, if any

    Arrays of Python objects are rejected, because reading them would run code from the file.
    """
    arrays = read_numpy_arrays(path)
    keys = {name.lower(): name for name in reversed(arrays)}
    parts = {}
    for part in ("train", "test"):
        key = next((keys[k] for k in _NPZ_IMAGES[part] if k in keys), None)
        if key is not None:
            where = f"{path}, array '{key}'," if path.suffix.lower() == ".npz" else str(path)
            pixels = as_pixels(arrays[key], where)
            label_key = next((keys[k] for k in _NPZ_LABELS[part] if k in keys), None)
            parts[part] = (pixels, None if label_key is None else as_label_array(arrays[label_key], len(pixels), where))
    if "train" not in parts:
        raise UsageError(
            f"{path} has no array of images: looked for the keys {', '.join(_NPZ_IMAGES['train'])}, found {', '.join(arrays) or 'none'}"
        )
    coded, classes = encode_labels(*(labels for _, labels in parts.values()))
    found = [build_images(pixels, options, source, y, classes) for (pixels, _), y in zip(parts.values(), coded, strict=True)]
    return Splits(found[0], found[1] if len(found) == 2 else None)


def read_numpy_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npy or .npz file by name.

    The array of a .npy is named x.
    """
    archive = path.suffix.lower() == ".npz"
    try:
        with path.open("rb") as f:
            if not archive and f.read(6) != b"\x93NUMPY":
                raise UsageError(f"{path} is not a numpy file: it does not begin with \\x93NUMPY")
            f.seek(0)
            loaded = np.load(f, allow_pickle=False)
            return {name: loaded[name] for name in loaded.files} if archive else {"x": loaded}
    except UsageError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        objects = isinstance(e, ValueError) and "Object arrays" in str(e)
        raise UsageError(f"cannot read {path}: {'it holds Python objects, not plain numbers' if objects else e}") from e
