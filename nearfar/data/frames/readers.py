r"""Recorded game in one file, with random access to frames, sound and RAM by frame number.

    "NEARFAR GAMES 1\n" | length, header (JSON) | blocks … | index (JSON) | offset and length of the index,
    hash of header and index, end marker

A block holds 64 consecutive frames as three zlib streams: pixels, sound and RAM. Each frame of pixels is
stored as its difference (exclusive or) from the previous frame of the block. The index holds the offset,
length and checksum of every stream, and the lengths of the episodes. Reading a frame therefore takes one seek
and one block, and checksums cover every byte of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from jaxtyping import Int64, UInt8

from nearfar.core.errors import UsageError
from nearfar.core.files import atomic_write

START_MARKER, END_MARKER = b"NEARFAR GAMES 1\n", b"\nEND OF GAMES\n"
FRAMES_PER_BLOCK = 64
"""Frames per block. Larger blocks compress better, smaller blocks make single frames faster to read."""
STREAM_NAMES = ("pixels", "sound", "ram")
_LENGTH, _TRAILER = struct.Struct("<I"), struct.Struct(f"<QQ16s{len(END_MARKER)}s")
_LARGEST_HEADER = 1 << 20


class RecordingWriter:
    """Writer of recordings.

    It collects frames and writes each block when the block is full.
    """

    def __init__(self, file: BinaryIO, header: dict[str, Any]):
        self.file, self.header = file, json.dumps(header, sort_keys=True).encode()
        self.block_index: list[list[int]] = []
        self.episode_lengths: list[int] = []
        self.pending_frames: list[tuple[np.ndarray, ...]] = []
        self.offset = file.write(START_MARKER) + file.write(_LENGTH.pack(len(self.header))) + file.write(self.header)

    def add_frame(self, pixels: UInt8[np.ndarray, "h w"], sound: UInt8[np.ndarray, " s"], ram: UInt8[np.ndarray, " r"]) -> None:
        """Append a frame to the current episode."""
        self.pending_frames.append((pixels, sound, ram))
        self.episode_lengths[-1] += 1
        if len(self.pending_frames) == FRAMES_PER_BLOCK:
            self._flush()

    def begin_episode(self) -> None:
        """Begin a new episode."""
        self.episode_lengths.append(0)

    def _flush(self) -> None:
        entry = [self.offset]
        for part, values in zip(STREAM_NAMES, map(np.stack, zip(*self.pending_frames, strict=True)), strict=True):
            if part == "pixels":
                values[1:] ^= values[:-1].copy()
            packed = zlib.compress(values.tobytes(), 6)
            self.offset += self.file.write(packed)
            entry += [len(packed), zlib.crc32(packed)]
        self.block_index.append(entry)
        self.pending_frames = []

    def finish(self) -> None:
        """Write the last block, the index and the end marker."""
        if self.pending_frames:
            self._flush()
        index = json.dumps({"episodes": self.episode_lengths, "blocks": self.block_index}).encode()
        self.file.write(index)
        self.file.write(_TRAILER.pack(self.offset, len(index), _digest(self.header, index), END_MARKER))


@contextlib.contextmanager
def create_recording(path: str | os.PathLike, header: dict[str, Any]) -> Iterator[RecordingWriter]:
    """Open a new recording for writing.

    The file appears only when it is complete.

    Args:
        path: file to write.
        header: JSON-serializable fields, at least "height" and "width".
    """
    with atomic_write(path) as file:
        writer = RecordingWriter(file, header)
        yield writer
        writer.finish()


@dataclass(frozen=True, eq=False)
class Recording:
    """Recording file with random access to its frames.

    Every read opens the file again, so worker processes may share the object.
    """

    path: Path
    header: dict[str, Any]
    episode_lengths: Int64[np.ndarray, " e"]
    """Number of frames of each episode, in order."""
    block_index: Int64[np.ndarray, "b 7"]
    """Offset of each block, then length and checksum of each of its streams."""
    fingerprint: str
    """Hash of header and index.

    The index holds the checksums of the blocks, so the hash covers the whole file.
    """

    def __len__(self) -> int:
        return int(self.episode_lengths.sum())

    @property
    def shape(self) -> tuple[int, int]:
        """Return height and width of a frame."""
        return self.header["height"], self.header["width"]

    def read_pixels(self, rows: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n h w"]:
        """Read the pixels of the given frames."""
        return self._read("pixels", rows, self.shape)

    def read_sound(self, rows: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n s"]:
        """Read the sound of the given frames."""
        return self._read("sound", rows, (self.header["samples"],))

    def read_ram(self, rows: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n r"]:
        """Read the RAM of the given frames."""
        return self._read("ram", rows, (self.header["ram"],))

    def _read(self, part: str, rows: Int64[np.ndarray, " n"], shape: tuple[int, ...]) -> UInt8[np.ndarray, "n ..."]:
        outside = rows[(rows < 0) | (rows >= len(self))]
        if outside.size:
            raise UsageError(f"{self.path} has {len(self):,} frames, there is no frame {outside[0]}")
        out = np.empty((len(rows), *shape), np.uint8)
        block = rows // FRAMES_PER_BLOCK
        with _open_file(self.path) as file:
            for number in np.unique(block):
                wanted = block == number
                out[wanted] = self._block(file, part, int(number), shape)[rows[wanted] % FRAMES_PER_BLOCK]
        return out

    def _block(self, file: BinaryIO, part: str, number: int, shape: tuple[int, ...]) -> UInt8[np.ndarray, "k ..."]:
        place, lengths = int(self.block_index[number, 0]), self.block_index[number, 1::2]
        which = STREAM_NAMES.index(part)
        file.seek(place + int(lengths[:which].sum()))
        packed = file.read(int(lengths[which]))
        first, count = number * FRAMES_PER_BLOCK, min(FRAMES_PER_BLOCK, len(self) - number * FRAMES_PER_BLOCK)
        if zlib.crc32(packed) != self.block_index[number, 2 + 2 * which]:
            _raise_damaged(self.path, f"the {part} of the frames {first} to {first + count - 1} do not match their checksum")
        values = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(count, *shape)
        return np.bitwise_xor.accumulate(values, axis=0) if part == "pixels" else values


def open_recording(path: str | os.PathLike) -> Recording:
    """Open a recording and check its header and index.

    No frame is read yet.

    Raises:
        UsageError: the file is not a recording, or it is damaged.
    """
    path = Path(path)
    with _open_file(path) as file:
        header, index, digest = _read_header_and_index(file, path)
    try:
        said, found = json.loads(header), json.loads(index)
        episodes, blocks = np.array(found["episodes"], np.int64), np.array(found["blocks"], np.int64).reshape(-1, 1 + 2 * len(STREAM_NAMES))
        assert all(isinstance(said[name], int) for name in ("height", "width", "samples", "ram"))
        assert len(blocks) == -(-episodes.sum() // FRAMES_PER_BLOCK)
    except (ValueError, KeyError, TypeError, AssertionError) as e:
        _raise_damaged(path, "header and index do not match")
        raise AssertionError from e
    return Recording(path, said, episodes, blocks, digest.hex())


def _read_header_and_index(file: BinaryIO, path: Path) -> tuple[bytes, bytes, bytes]:
    """Read header, index and the hash of both."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if file.read(len(START_MARKER)) != START_MARKER:
        raise UsageError(f"{path} is not a recording of games: it does not begin with {START_MARKER[:-1].decode()!r}")
    if size < len(START_MARKER) + _LENGTH.size + _TRAILER.size:
        _raise_damaged(path, "its end is missing")
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    header = file.read(min(length, _LARGEST_HEADER))
    file.seek(size - _TRAILER.size)
    place, length, digest, end = _TRAILER.unpack(file.read(_TRAILER.size))
    if end != END_MARKER:
        _raise_damaged(path, "its end is missing")
    if place + length + _TRAILER.size != size:
        _raise_damaged(path, "its index is not at the expected position")
    file.seek(place)
    index = file.read(length)
    if _digest(header, index) != digest:
        _raise_damaged(path, "its header or its index does not match its checksum")
    return header, index, digest


def _raise_damaged(path: Path, why: str) -> NoReturn:
    raise UsageError(f"{path} is damaged: {why}. Is the copy incomplete? `nearfar record` can record it again")


def _digest(header: bytes, index: bytes) -> bytes:
    return hashlib.blake2b(_LENGTH.pack(len(header)) + header + index, digest_size=16).digest()


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e
