"""Atomic file writes and file locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nearfar.core.errors import NearfarError, UsageError


def resolve_writable_path(path: str | os.PathLike) -> Path:
    """Return the path if a regular file can be written there.

    Raises:
        UsageError: If the path is a folder, a device, a pipe or a link, or if its folder does not exist.
    """
    target = Path(path)
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        mode = None
    except OSError as e:
        raise UsageError(f"cannot write {target}: {e.strerror}") from e
    if mode is not None and not stat.S_ISREG(mode):
        kinds = [(stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a pipe")]
        kind = next((name for test, name in kinds if test(mode)), "a device")
        raise UsageError(f"cannot write {target}: it is {kind}, not a regular file")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {target}: there is no folder {target.parent}")
    return target


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a binary file for an atomic write.

    The file appears under its name only when it is complete and flushed to disk. After an error it does not
    appear.
    """
    target = resolve_writable_path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as e:
        raise UsageError(f"cannot write into {target.parent}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, target)
        flush_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    with atomic_write(path) as f:
        f.write((json.dumps(value, indent=2, sort_keys=False) + "\n").encode())


def flush_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename in it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def hold_file_lock(lock_path: Path, open_error: str, busy_error: str) -> Iterator[None]:
    """Hold an exclusive lock on a file within the block.

    The operating system releases the lock when the process ends, for any reason.

    Args:
        lock_path: Lock file, created if it does not exist.
        open_error: Start of the message if the file cannot be created.
        busy_error: Message if another process holds the lock.

    Raises:
        NearfarError: If the file cannot be created or another process holds the lock.
    """
    try:
        file = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as e:
        raise NearfarError(f"{open_error}: {e.strerror}") from e
    with os.fdopen(file) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise NearfarError(busy_error) from e
        yield
