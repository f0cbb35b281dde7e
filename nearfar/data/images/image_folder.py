"""Reader of image folders and lists of image files, of any size and kind.

Labels: the first level of sub-folders names the classes if every image lies in a sub-folder and there are
at least two sub-folders. Otherwise there are no labels.

Splits: `train/` and the first of `test/`, `val/`, `valid/`, `validation/`. Other folders next to these two
are then left out. `train/` alone is a training split. Hidden files and folders are ignored, and links are
followed.

Channels: one if every file's header says gray (black and white, 8 or 16 bit), else three.

Size: the requested size, else the images' own size if all share one square size, else 64.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions, encode_labels
from nearfar.data.common.image_stores import ImageFileStore, InMemoryImageStore, fingerprint_file, hash_bytes
from nearfar.data.common.splits import Splits
from nearfar.data.images.dataset import Images
from nearfar.data.images.decode import IMAGE_EXTENSIONS, BrokenImage, is_gray, map_in_threads, open_image, read_upright_size

MAX_BYTES_IN_MEMORY = 1 << 30
"""Largest number of bytes of pixels that are decoded once and kept in memory.

Larger data are read from the files, batch by batch. Views are then cut out of the files themselves, at
their original size (see `read_crops`).
"""
DEFAULT_IMAGE_SIZE = 64
_TEST_NAMES = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class ImageHeader:
    """Facts about an image file that are kept without its pixels."""

    size: tuple[int, int]
    is_gray: bool
    fingerprint: str


def read_image_folder(folder: Path, options: ImageReadOptions, source: str) -> Splits:
    """Read a folder of images as a training split and an optional test split.

    Every file is inspected, channels and size are chosen, and images that fit into memory are decoded.
    `options.progress` counts the files of each pass: the inspection, then the decoding of each split. With
    on_error "skip" the inspection decodes every file to find the broken ones. With "stop" it reads headers
    only.
    """
    parts, depth = _parts(_image_paths(folder))
    return read_image_paths(folder, parts, depth, options, source)


def read_image_files(paths: Sequence[str | os.PathLike], options: ImageReadOptions, source: str) -> Splits:
    """Read image files in the given order.

    The rules of folders apply, but the images have no labels.
    """
    return read_image_paths(Path(), [[os.path.expanduser(os.fspath(path)) for path in paths]], None, options, source)


def read_image_paths(folder: Path, split_paths: list[list[str]], class_depth: int | None, options: ImageReadOptions, source: str) -> Splits:
    """Read image files as a training split and, if given, a test split.

    Args:
        folder: Folder to which the paths are relative.
        split_paths: Paths of the training split, and of the test split if there is one.
        class_depth: Depth of the folders that name classes; None means no labels.
        options: Options of the readers.
        source: Name of the data for the user.

    Raises:
        UsageError: No file of a split can be read, or a file is broken and `options.on_error` is "stop".
    """
    headers, skipped = _look(folder, [path for part in split_paths for path in part], options)
    kept = [[path for path in part if path in headers] for part in split_paths]
    for part, left in zip(split_paths, kept, strict=True):
        if not left:
            raise UsageError(f"none of {len(part)} image files can be read; the first is {folder / part[0]}")
    channels = 1 if all(h.is_gray for h in headers.values()) else 3
    size = options.image_size or find_common_size(h.size for h in headers.values())
    whole = len(headers) * channels * size * size <= MAX_BYTES_IN_MEMORY
    labels, classes = ([None], ()) if class_depth is None else _labels(kept, class_depth)

    def images(paths: list[str], labels: np.ndarray | None) -> Images:
        listed = "\n".join(f"{headers[p].fingerprint} {p}" for p in paths)
        fingerprint = hash_bytes(os.fsencode(listed), str((channels, size)).encode())
        names, sides = np.array([os.fsencode(p) for p in paths]), np.array([headers[p].size for p in paths], dtype=np.int32)
        files, rows = ImageFileStore(folder.absolute(), names, (channels, size, size), sides, fingerprint), np.arange(len(paths))
        store = InMemoryImageStore(files.read(rows, options.progress), tuple(paths), fingerprint) if whole else files
        return Images(store, rows, labels, classes, source, skipped)

    found = [images(paths, y) for paths, y in zip(kept, labels, strict=True)]
    return Splits(found[0], found[1] if len(found) == 2 else None)


def find_common_size(sizes: Iterable[tuple[int, int]]) -> int:
    """Return the side of the images' common square, else 64."""
    found = set(sizes)
    width, height = next(iter(found))
    return width if len(found) == 1 and width == height else DEFAULT_IMAGE_SIZE


def _image_paths(folder: Path) -> list[str]:
    """Return sorted paths of the image files, relative to `folder`."""
    files = [p.relative_to(folder).as_posix() for p in _walk(folder, ())]
    images = sorted(f for f in files if Path(f).suffix.lower() in IMAGE_EXTENSIONS)
    if not images:
        found = Counter(Path(f).suffix.lower() or "without extension" for f in files)
        listed = ", ".join(f"{count} {kind}" for kind, count in found.most_common(5)) or "nothing: the folder is empty"
        raise UsageError(f"no images in {folder}: looked for {' '.join(IMAGE_EXTENSIONS)}, found {listed}")
    return images


def _walk(folder: Path, above: tuple[str, ...]) -> Iterable[Path]:
    """Yield the regular files below `folder`.

    Links to folders are followed, except into a folder that contains them.
    """
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError as e:
        raise UsageError(f"cannot read the folder {folder}: {e.strerror}") from e
    for entry in entries:
        if entry.name.startswith((".", "__MACOSX")):
            continue
        if os.path.isdir(entry):
            yield from _walk(entry, (*above, real))
        elif os.path.isfile(entry):
            yield entry


def _parts(paths: list[str]) -> tuple[list[list[str]], int]:
    """Divide the paths into splits and find the depth of class folders.

    Returns:
        Paths for training and, if the folders say so, for testing; the depth at which folders name classes.
    """
    heads = [path.split("/")[0].lower() if "/" in path else "" for path in paths]
    test = next((name for name in _TEST_NAMES if name in heads), None)
    if "train" in heads and test:
        return [[path for path, head in zip(paths, heads, strict=True) if head == part] for part in ("train", test)], 1
    return [paths], int(set(heads) == {"train"})


def _labels(parts: list[list[str]], depth: int) -> tuple[list[np.ndarray | None], tuple[str, ...]]:
    """Read the labels from the folders at `depth`.

    A part with a file outside such folders has no labels.
    """
    names = [[path.split("/")[depth] for path in part if path.count("/") > depth] for part in parts]
    complete = [np.array(n) if len(n) == len(part) else None for n, part in zip(names, parts, strict=True)]
    labels, classes = encode_labels(*complete)
    return (labels, classes) if len(classes) > 1 else ([None for _ in parts], ())


def _look(folder: Path, paths: list[str], options: ImageReadOptions) -> tuple[dict[str, ImageHeader], tuple[str, ...]]:
    """Return the headers of readable files and the other paths."""

    def look(name: str) -> ImageHeader | BrokenImage:
        path = folder / name
        try:
            with open_image(path) as image:
                header = ImageHeader(read_upright_size(image), is_gray(image), fingerprint_file(path))
                if options.on_error == "skip":
                    image.draft(None, (1, 1))  # every byte of a JPEG is read, few of its pixels are computed
                    image.load()
                return header
        except BrokenImage as e:
            return e

    headers, skipped = {}, []
    for name, found in zip(paths, map_in_threads(look, paths, options.progress), strict=True):
        if isinstance(found, ImageHeader):
            headers[name] = found
        elif options.on_error == "skip":
            skipped.append(name)
        else:
            raise found.to_usage_error(folder / name) from found
    return headers, tuple(skipped)
