"""The folder of an index: files that are whole, or refused.

    manifest.json          what the index is, the names of its files, the SHA-256 of each and of itself
    vectors-3.faiss        the vectors, as FAISS writes them          (3: the third state of the index)
    rows-3.arrow           names, labels, texts, paths, pictures
    deleted-3.npy          rows that were deleted
    lock                   held by whoever changes it

A new index is built under a temporary name and renamed. A change writes new files beside the old ones, then replaces the manifest in
one step, then removes the old ones: whoever reads sees the state before or the one after, and a kill at any time leaves one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
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
"""What writes each file, by its name without the number: {"rows.arrow": …}."""


@dataclass(frozen=True)
class Manifest:
    """A verified index folder."""

    folder: Path
    revision: int
    """How many times it was written."""
    metadata: dict[str, Any]
    sha256: dict[str, str]

    def get_path(self, name: str) -> Path:
        return self.folder / _add_revision(name, self.revision)


def check_new_folder(out: str | os.PathLike, overwrite: bool = False) -> Path:
    """A place where an index may be built."""
    target = Path(out)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"--out {target} is a file or a link; give the name of a folder to make")
    if (target / "manifest.json").exists():
        if not overwrite:
            raise UsageError(f"{target} already holds an index: add to it (`nearfar index --add DATA {target}`) or give --overwrite")
    elif target.is_dir() and any(target.iterdir()):
        raise UsageError(f"--out {target} is a folder with other things in it; give a new or empty one")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"cannot make {target}: there is no folder {target.absolute().parent}")
    return target


def create_index_folder(out: str | os.PathLike, metadata: dict[str, Any], writers: FileWriters, overwrite: bool = False) -> Manifest:
    """Write a new index; it appears under its name whole, or not at all."""
    target = check_new_folder(out, overwrite)
    if overwrite and (target / "manifest.json").exists():
        with lock_index_folder(target):
            return _write(target, _read_revision(target) + 1, metadata, writers)
    temporary = target.absolute().parent / f".{target.name}.{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write(temporary, 1, metadata, writers)
        if target.is_dir():  # empty: a rename replaces only such a one, and only where the system allows it
            target.rmdir()
        temporary.rename(target)
        flush_folder(target.absolute().parent)
    except OSError as e:
        raise NearfarError(f"cannot write the index {target}: {e.strerror or e}") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return verify_index_folder(target)


def write_next_revision(manifest: Manifest, metadata: dict[str, Any], writers: FileWriters) -> Manifest:
    """Write the next state. Refused where somebody else wrote one in the meantime."""
    with lock_index_folder(manifest.folder):
        if _read_revision(manifest.folder) != manifest.revision:
            raise NearfarError(f"{manifest.folder} was changed by another process since it was opened: open it again")
        try:
            return _write(manifest.folder, manifest.revision + 1, metadata, writers)
        except OSError as e:
            raise NearfarError(f"cannot write the index {manifest.folder}: {e.strerror or e}; it is as it was") from e


def verify_index_folder(folder: str | os.PathLike) -> Manifest:
    """Read every byte and compare it with the manifest."""
    path = Path(folder)
    if not (path / "manifest.json").is_file():
        raise UsageError(f"{path} is not an index: {'it has no manifest.json' if path.exists() else 'there is no such folder'}")
    manifest = _read_manifest(path)
    for name, digest in manifest.sha256.items():
        try:
            if _sha256(manifest.get_path(name)) != digest:
                raise NearfarError(f"{manifest.get_path(name)} is damaged: its bytes are not those that were written. Build the index anew")
        except OSError as e:
            if _read_manifest(path).revision != manifest.revision:  # another process replaced the files while these were read
                return verify_index_folder(path)
            raise NearfarError(f"the index {path} is damaged: {manifest.get_path(name).name}: {e.strerror}. Build it anew") from e
    return manifest


def lock_index_folder(folder: Path) -> AbstractContextManager[None]:
    """Only one process changes an index."""
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
    _remove_others(folder, {_add_revision(name, revision) for name in writers})
    return Manifest(folder, revision, metadata, sums)


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Files of earlier states, and what a killed writer left. The change is made already: what cannot be removed now is the next time."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in {*kept, "manifest.json", "lock"} and path.name.startswith(
                ("vectors-", "rows-", "deleted-", ".manifest.json.")
            ):
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
                f"{folder} was built by another version of nearfar (format {body['format']}; this version reads format {INDEX_FOLDER_FORMAT}): build it again"
            )
        return Manifest(folder, body["revision"], body, body["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise NearfarError(f"{folder / 'manifest.json'} is damaged ({e}): build the index anew") from e


def _read_revision(folder: Path) -> int:
    return _read_manifest(folder).revision


def _add_revision(name: str, revision: int) -> str:
    stem, suffix = name.split(".")
    return f"{stem}-{revision}.{suffix}"


def _encode_canonically(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
