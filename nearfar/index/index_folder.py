"""The folder of an index: files that are whole, or refused.

    manifest.json          what the index is, the names of its files, the SHA-256 of each and of itself
    vectors-3.faiss        the vectors, as FAISS writes them          (3: the third state of the index)
    items-3.arrow          names, labels, texts, paths, pictures
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
from nearfar.core.files import flush_folder, only_one, write_json

FORMAT = 1
Writers = Mapping[str, Callable[[Path], None]]
"""What writes each file, by its name without the number: {"items.arrow": …}."""


@dataclass(frozen=True)
class Manifest:
    """A verified index folder."""

    folder: Path
    state: int
    """How many times it was written."""
    about: dict[str, Any]
    sha256: dict[str, str]

    def path(self, name: str) -> Path:
        return self.folder / _numbered(name, self.state)


def check_new(out: str | os.PathLike, overwrite: bool = False) -> Path:
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


def create(out: str | os.PathLike, about: dict[str, Any], writers: Writers, overwrite: bool = False) -> Manifest:
    """Write a new index; it appears under its name whole, or not at all."""
    target = check_new(out, overwrite)
    if overwrite and (target / "manifest.json").exists():
        with locked(target):
            return _write(target, _state_of(target) + 1, about, writers)
    temporary = target.absolute().parent / f".{target.name}.{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write(temporary, 1, about, writers)
        if target.is_dir():  # empty: a rename replaces only such a one, and only where the system allows it
            target.rmdir()
        temporary.rename(target)
        flush_folder(target.absolute().parent)
    except OSError as e:
        raise NearfarError(f"cannot write the index {target}: {e.strerror or e}") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return verify(target)


def replace(manifest: Manifest, about: dict[str, Any], writers: Writers) -> Manifest:
    """Write the next state. Refused where somebody else wrote one in the meantime."""
    with locked(manifest.folder):
        if _state_of(manifest.folder) != manifest.state:
            raise NearfarError(f"{manifest.folder} was changed by another process since it was opened: open it again")
        try:
            return _write(manifest.folder, manifest.state + 1, about, writers)
        except OSError as e:
            raise NearfarError(f"cannot write the index {manifest.folder}: {e.strerror or e}; it is as it was") from e


def verify(folder: str | os.PathLike) -> Manifest:
    """Read every byte and compare it with the manifest."""
    path = Path(folder)
    if not (path / "manifest.json").is_file():
        raise UsageError(f"{path} is not an index: {'it has no manifest.json' if path.exists() else 'there is no such folder'}")
    manifest = _read_manifest(path)
    for name, digest in manifest.sha256.items():
        try:
            if _sha256(manifest.path(name)) != digest:
                raise NearfarError(f"{manifest.path(name)} is damaged: its bytes are not those that were written. Build the index anew")
        except OSError as e:
            if _read_manifest(path).state != manifest.state:  # another process replaced the files while these were read
                return verify(path)
            raise NearfarError(f"the index {path} is damaged: {manifest.path(name).name}: {e.strerror}. Build it anew") from e
    return manifest


def locked(folder: Path) -> AbstractContextManager[None]:
    """Only one process changes an index."""
    return only_one(folder / "lock", f"cannot change {folder}", f"another process is changing {folder}: try again when it is done")


def _write(folder: Path, state: int, about: dict[str, Any], writers: Writers) -> Manifest:
    sums = {}
    for name, write in writers.items():
        path = folder / _numbered(name, state)
        write(path)
        with open(path, "rb") as f:
            os.fsync(f.fileno())
        sums[name] = _sha256(path)
    body = {"format": FORMAT, "state": state, "sha256": sums, **about}
    write_json(folder / "manifest.json", {"sha256": hashlib.sha256(_canonical(body)).hexdigest(), "body": body})
    _remove_others(folder, {_numbered(name, state) for name in writers})
    return Manifest(folder, state, about, sums)


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Files of earlier states, and what a killed writer left. The change is made already: what cannot be removed now is the next time."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in {*kept, "manifest.json", "lock"} and path.name.startswith(
                ("vectors-", "items-", "deleted-", ".manifest.json.")
            ):
                path.unlink(missing_ok=True)


def _read_manifest(folder: Path) -> Manifest:
    try:
        sealed = json.loads((folder / "manifest.json").read_text())
        body = sealed["body"]
        whole = sealed["sha256"] == hashlib.sha256(_canonical(body)).hexdigest()
        names = {name: Path(name).name == name for name in body["sha256"]}
        if not whole or not all(names.values()):
            raise ValueError("its checksum does not match")
        if body["format"] != FORMAT:
            raise NearfarError(f"{folder} is an index of format {body['format']}; this version of nearfar reads format {FORMAT}")
        return Manifest(folder, body["state"], body, body["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise NearfarError(f"{folder / 'manifest.json'} is damaged ({e}): build the index anew") from e


def _state_of(folder: Path) -> int:
    return _read_manifest(folder).state


def _numbered(name: str, state: int) -> str:
    stem, suffix = name.split(".")
    return f"{stem}-{state}.{suffix}"


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
