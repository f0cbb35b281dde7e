"""Loading of frames in episodes from any supported source.

A source is a recording, an .npz file, a folder of image folders, an array or a built-in name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.arrays import as_label_array, as_pixels
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.frames.dataset import DecodedRecording, Frames, RecordingStore
from nearfar.data.frames.readers import FRAMES_PER_BLOCK, Recording, open_recording
from nearfar.data.images.decode import (
    IMAGE_EXTENSIONS,
    BrokenImage,
    convert_channels,
    is_gray,
    map_in_threads,
    open_image,
    rotate_upright,
    to_pixel_array,
)
from nearfar.data.images.readers import read_numpy_arrays
from nearfar.data.samples.bounce import make_bounce

BUILTIN_FRAMES = {"bounce": make_bounce}
"""Built-in datasets by name."""
MAX_DECODED_BYTES = 6 << 30
"""Largest number of pixel bytes that are decoded into memory.

Frames of larger recordings are read from the file.
"""
RECORDING_SUFFIX = ".games"


def load_all_frames(spec: Any, progress: ProgressCallback | None = None) -> Frames:
    """Load all frames of a source, in time order.

    Args:
        spec: built-in name, path, array `(n, height, width)` of one episode, or loaded `Frames`.
        progress: progress callback.

    Raises:
        UsageError: the type of `spec` is not supported.
    """
    if isinstance(spec, Frames):
        return spec
    if isinstance(spec, str) and spec in BUILTIN_FRAMES:
        return BUILTIN_FRAMES[spec]()
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), progress)
    if isinstance(spec, (np.ndarray, Tensor)):
        pixels = as_pixels(spec, f"the array of shape {tuple(spec.shape)}")
        return _build_frames(pixels, np.zeros(len(pixels), np.int64), f"array of shape {tuple(spec.shape)}")
    raise UsageError(f"cannot read frames from a {type(spec).__name__}: give a name, a path or an array (n, height, width) of one episode")


def _read_path(text: str, progress: ProgressCallback | None) -> Frames:
    path = Path(text).expanduser()
    if path.is_dir():
        return _read_folder(path, text, progress)
    if path.is_file() and path.suffix.lower() == RECORDING_SUFFIX:
        return read_recording(open_recording(path), text, progress)
    if path.is_file() and path.suffix.lower() == ".npz":
        return _read_npz(path, text)
    if path.is_file():
        raise UsageError(f"cannot read frames from the file {path}: give a recording ({RECORDING_SUFFIX}), an .npz or a folder of episodes")
    raise UsageError(f"{build_missing_data_error(text, BUILTIN_FRAMES)} `nearfar record` creates a recording")


def read_recording(recording: Recording, source: str, progress: ProgressCallback | None = None) -> Frames:
    """Read the frames and variables of a recorded game.

    The frames are decoded into memory unless the recording exceeds `MAX_DECODED_BYTES`.
    """
    n, (height, width) = len(recording), recording.shape
    if n * height * width <= MAX_DECODED_BYTES:
        pixels = torch.empty(n, 1, height, width, dtype=torch.uint8)
        starts = range(0, n, FRAMES_PER_BLOCK)
        block = lambda start: recording.read_pixels(np.arange(start, min(start + FRAMES_PER_BLOCK, n)))
        for start, values in zip(starts, map_in_threads(block, starts, progress), strict=True):
            pixels[start : start + FRAMES_PER_BLOCK, 0] = torch.from_numpy(values)
        store: Any = DecodedRecording(pixels, source_fingerprint=recording.fingerprint)
    else:
        store = RecordingStore(recording)
    variables = recording.header.get("variables", {})
    values = recording.read_ram(np.arange(n))[:, list(variables.values())].astype(np.int64) if variables else None
    episode = np.repeat(np.arange(len(recording.episode_lengths)), recording.episode_lengths)
    return Frames(store, np.arange(n), source=source, episode=episode, values=values, variables=tuple(variables))


def _read_npz(path: Path, source: str) -> Frames:
    """Read frames from an .npz file.

    Arrays: `frames` (n, height, width[, channels]); optionally `episode` (n,), integers that change where an
    episode begins; optionally `labels` (n, v), integers, with their names in `variables` (v,).
    """
    arrays = read_numpy_arrays(path)
    if "frames" not in arrays:
        raise UsageError(f"{path} has no array 'frames', it has {', '.join(arrays) or 'none'}")
    pixels = as_pixels(arrays["frames"], f"{path}, array 'frames',")
    given = as_label_array(arrays.get("episode", np.zeros(len(pixels), np.int64)), len(pixels), f"{path}, array 'episode',", "frames")
    values, names = arrays.get("labels"), arrays.get("variables")
    if values is None:
        return _build_frames(pixels, _number_episodes(given), source)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(pixels) or values.dtype.kind not in "iu":
        raise UsageError(
            f"{path}, array 'labels', must be whole numbers of shape ({len(pixels)}, v), got {values.dtype} of shape {values.shape}"
        )
    names = [f"variable_{i}" for i in range(values.shape[1])] if names is None else [str(name) for name in names.ravel()]
    if len(set(names)) != values.shape[1]:
        raise UsageError(f"{path} has {values.shape[1]} columns in 'labels' and {len(set(names))} different names in 'variables'")
    return _build_frames(pixels, _number_episodes(given), source, values.astype(np.int64), tuple(names))


def _read_folder(folder: Path, source: str, progress: ProgressCallback | None) -> Frames:
    """Read one episode from each sub-folder.

    All images must have one size. The numbers in the file names give the order of the images.
    """
    episodes = [sub for sub in sorted(folder.iterdir(), key=_natural_sort_key) if sub.is_dir() and not sub.name.startswith(".")]
    found = [[p for p in sorted(sub.iterdir(), key=_natural_sort_key) if p.suffix.lower() in IMAGE_EXTENSIONS] for sub in episodes]
    paths = [path for inside in found for path in inside]
    if not paths:
        raise UsageError(
            f"{folder} has no sub-folders with images ({' '.join(IMAGE_EXTENSIONS)}): each episode must be a folder of numbered frames"
        )
    shape = _read_frame_file(paths[0]).shape

    def frame(path: Path) -> np.ndarray:
        values = _read_frame_file(path, shape[0])
        if values.shape != shape:
            raise UsageError(f"{path} is {values.shape[1]} pixels high and {values.shape[2]} wide, {paths[0]} is {shape[1]} and {shape[2]}")
        return values

    pixels = torch.from_numpy(np.stack(list(map_in_threads(frame, paths, progress))))
    return _build_frames(pixels, np.repeat(np.arange(len(found)), [len(inside) for inside in found]), source)


def _read_frame_file(path: Path, channels: int | None = None) -> np.ndarray:
    try:
        with open_image(path) as image:
            return to_pixel_array(convert_channels(rotate_upright(image), channels or (1 if is_gray(image) else 3)))
    except BrokenImage as e:
        raise e.to_usage_error(path) from e


def _natural_sort_key(path: Path) -> list[Any]:
    """Return a sort key that puts 9.png before 10.png."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", path.name)]


def _number_episodes(given: np.ndarray) -> np.ndarray:
    """Number the episodes from 0.

    A new episode begins where the given number changes.
    """
    return np.concatenate([[0], np.cumsum(given[1:] != given[:-1])]).astype(np.int64)


def _build_frames(
    pixels: Tensor, episode: np.ndarray, source: str, values: np.ndarray | None = None, variables: tuple[str, ...] = ()
) -> Frames:
    return Frames(InMemoryImageStore(pixels), np.arange(len(pixels)), source=source, episode=episode, values=values, variables=variables)
