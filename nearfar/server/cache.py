"""Cache of computed arrays next to the run, with checksums and stamps of their inputs."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nearfar.core import NearfarError
from nearfar.core.files import atomic_write, write_json

logger = logging.getLogger("nearfar")


class ArrayCache:
    """Arrays in a folder by name.

    Damaged arrays and arrays with another stamp are computed again.
    """

    def __init__(self, folder: Path, stamp: str):
        self.folder, self.stamp = folder, stamp

    def get(self, name: str) -> np.ndarray | None:
        """Return a cached array, or None if it is missing, damaged or outdated."""
        path, about = self.folder / f"{name}.npy", self.folder / f"{name}.json"
        try:
            said = json.loads(about.read_text())
            if said["stamp"] != self.stamp or said["sha256"] != _sha256(path):
                return None
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, name: str, values: np.ndarray) -> None:
        """Store an array.

        A folder that is not writable only costs computing time later.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            with atomic_write(self.folder / f"{name}.npy") as f:
                np.save(f, values, allow_pickle=False)
            write_json(self.folder / f"{name}.json", {"stamp": self.stamp, "sha256": _sha256(self.folder / f"{name}.npy")})
        except (OSError, NearfarError) as e:
            logger.warning("%s is not kept: %s", name, e)

    def get_or_compute(self, name: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return a cached array.

        Compute and store it if it is not cached.
        """
        if (found := self.get(name)) is None:
            found = compute()
            self.put(name, found)
        return found


def _sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
