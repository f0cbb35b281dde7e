"""Folder of an index, with files that are verified or rejected.

    manifest.json          metadata of the index, the names of its files, the SHA-256 of each and of itself
    vectors-3.faiss        the vectors, as FAISS writes them          (3: the third revision of the index)
    rows-3.arrow           names, labels, texts, paths, thumbnails
    deleted-3.npy          deleted rows
    lock                   held by the process that changes the index
    bm25                   folder of the same kind with the BM25 index of the texts, see `bm25.py`

A new index is built under a temporary name and renamed. A change writes new files next to the old ones, then
replaces the manifest in one step, then removes the old files. A reader sees the state before or after the
change. A process killed at any time also leaves one of these two states.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.core.errors import NearfarError, UsageError
from nearfar.core.files import flush_folder, hold_file_lock, write_json

INDEX_FOLDER_FORMAT = 2
FileWriters = Mapping[str, Callable[[Path], None]]
"""Functions that write the files, by file name without the revision: {"rows.arrow": …}."""


@dataclass(frozen=True)
class Manifest:
    """Manifest of a verified index folder."""

    folder: Path
    revision: int
    """Number of times that the folder was written."""
    metadata: dict[str, Any]
    sha256: dict[str, str]

    def get_path(self, name: str) -> Path:
        """Return the path of a file in its present revision."""
        return self.folder / _add_revision(name, self.revision)


def check_new_folder(out: str | os.PathLike, overwrite: bool = False) -> Path:
    """Check that an index can be built in a folder.

    Raises `UsageError` if the path is a file or a link, holds other files, holds an index (without
    `overwrite`), or has no parent folder.
    """
    target = Path(out)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"--out {target} is a file or a link; give the name of a new folder")
    if (target / "manifest.json").exists():
        if not overwrite:
            raise UsageError(f"{target} already holds an index: add to it (`nearfar index --add DATA {target}`) or give --overwrite")
    elif target.is_dir() and any(target.iterdir()):
        raise UsageError(f"--out {target} is a folder with other files in it; give a new or empty one")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"cannot make {target}: there is no folder {target.absolute().parent}")
    return target


def create_index_folder(out: str | os.PathLike, metadata: dict[str, Any], writers: FileWriters, overwrite: bool = False) -> Manifest:
    """Write a new index.

    The index appears under its name complete, or not at all.
    """
    target = check_new_folder(out, overwrite)
    if overwrite and (target / "manifest.json").exists():
        with lock_index_folder(target):
            return _write(target, _find_last_revision(target) + 1, metadata, writers)
    temporary = target.absolute().parent / f".{target.name}.{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write(temporary, 1, metadata, writers)
        if target.is_dir():  # empty: rename replaces only an empty folder, and not on every system
            target.rmdir()
        temporary.rename(target)
        flush_folder(target.absolute().parent)
    except OSError as e:
        raise NearfarError(f"cannot write the index {target}: {e.strerror or e}") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return verify_index_folder(target)


def write_next_revision(manifest: Manifest, metadata: dict[str, Any], writers: FileWriters) -> Manifest:
    """Write the next revision of an index.

    Raises `NearfarError` if another process changed the index since it was opened.
    """
    with lock_index_folder(manifest.folder):
        if _read_revision(manifest.folder) != manifest.revision:
            raise NearfarError(f"{manifest.folder} was changed by another process since it was opened: open it again")
        try:
            return _write(manifest.folder, manifest.revision + 1, metadata, writers)
        except OSError as e:
            raise NearfarError(f"cannot write the index {manifest.folder}: {e.strerror or e}; the index is unchanged") from e


def verify_index_folder(folder: str | os.PathLike) -> Manifest:
    """Read every byte of an index and compare it with the manifest."""
    path = Path(folder)
    if not (path / "manifest.json").is_file():
        raise UsageError(f"{path} is not an index: {'it has no manifest.json' if path.exists() else 'there is no such folder'}")
    manifest = _read_manifest(path)
    for name, digest in manifest.sha256.items():
        try:
            if _sha256(manifest.get_path(name)) != digest:
                raise NearfarError(
                    f"{manifest.get_path(name)} is damaged: its content differs from what was written. Build the index again"
                )
        except OSError as e:
            # Another process replaced the files during the check.
            if _read_manifest(path).revision != manifest.revision:
                return verify_index_folder(path)
            raise NearfarError(f"the index {path} is damaged: {manifest.get_path(name).name}: {e.strerror}. Build it again") from e
    return manifest


def lock_index_folder(folder: Path) -> AbstractContextManager[None]:
    """Lock an index folder, so that only one process changes it."""
    return hold_file_lock(folder / "lock", f"cannot change {folder}", f"another process is changing {folder}: try again when it is done")


def _write(folder: Path, revision: int, metadata: dict[str, Any], writers: FileWriters) -> Manifest:
    sums = {}
    for name, write in writers.items():
        path = folder / _add_revision(name, revision)
        write(path)
        with open(path, "rb") as f:
            os.fsync(f.fileno())
        sums[name] = _sha256(path)
    body = {"format": INDEX_FOLDER_FORMAT, "revision": revision, "sha256": sums, **metadata}
    write_json(folder / "manifest.json", {"sha256": hashlib.sha256(_encode_canonically(body)).hexdigest(), "body": body})
    _remove_others(folder, revision, list(writers))
    return Manifest(folder, revision, metadata, sums)


def _remove_others(folder: Path, revision: int, names: list[str]) -> None:
    """Remove files of other revisions and of killed writers.

    The change is already complete. The next change removes files that cannot be removed now.
    """
    kept = {_add_revision(name, revision) for name in names}
    removed = (".manifest.json.", *(_add_revision(name, "").rpartition(".")[0] for name in names))
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in kept and path.name.startswith(removed):
                path.unlink(missing_ok=True)


def _read_manifest(folder: Path) -> Manifest:
    try:
        sealed = json.loads((folder / "manifest.json").read_text())
        body = sealed["body"]
        whole = sealed["sha256"] == hashlib.sha256(_encode_canonically(body)).hexdigest()
        names = {name: Path(name).name == name for name in body["sha256"]}
        if not whole or not all(names.values()):
            raise ValueError("its checksum does not match")
        if body["format"] != INDEX_FOLDER_FORMAT:
            raise NearfarError(
                f"{folder} was built by another version of nearfar (format {body['format']}; "
                f"this version reads format {INDEX_FOLDER_FORMAT}): build it again"
            )
        return Manifest(folder, body["revision"], body, body["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise NearfarError(f"{folder / 'manifest.json'} is damaged ({e}): build the index again") from e


def _read_revision(folder: Path) -> int:
    return _read_manifest(folder).revision


def _find_last_revision(folder: Path) -> int:
    """Return the highest revision among the names of the files.

    The manifest is not read: a damaged index, or one of an earlier format, can be overwritten.
    """
    found = [re.fullmatch(r"[a-z]+-(\d{1,9})\.[a-z0-9]+", path.name) for path in folder.iterdir()]
    return max((int(match[1]) for match in found if match), default=0)


def _add_revision(name: str, revision: int | str) -> str:
    stem, suffix = name.split(".")
    return f"{stem}-{revision}.{suffix}"


def _encode_canonically(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
