"""Folder of a run and its files.

A run folder contains

    config.json       settings
    metrics.jsonl     metrics
    log.txt           log messages
    split.json        ids of the test samples
    tokenizer.json    tokenizer (texts only)
    recipe.py         copy of a user-defined recipe
    checkpoints/      checkpoints
    lock              locked while a process trains
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from nearfar.core import NearfarError, UsageError
from nearfar.core.files import atomic_write, hold_file_lock, resolve_writable_path, write_json
from nearfar.data.common.tokenizer import Tokenizer

RUN_FORMAT = 2
"""Format number of the folder and of config.json. Readers reject other numbers."""
logger = logging.getLogger("nearfar")


class RunFolder:
    """Paths and files of one run.

    This class does not depend on the training.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "log.txt"
        self.split_file = self.path / "split.json"
        self.tokenizer_file = self.path / "tokenizer.json"
        self.recipe_file = self.path / "recipe.py"
        self.checkpoints_folder = self.path / "checkpoints"

    @classmethod
    @contextlib.contextmanager
    def create(cls, path: str | os.PathLike, overwrite: bool = False) -> Iterator[RunFolder]:
        """Make a new, empty run folder and hold its lock.

        Args:
            path: folder to make. It may exist if it is empty.
            overwrite: remove a run that is there. Nothing but a run is ever removed.

        Raises:
            UsageError: if the path is a file, a folder with other things, or a run that may not be
                overwritten.
            NearfarError: if another process trains there.
        """
        folder = cls(path)
        folder._refuse_occupied(overwrite)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"cannot create the run folder {folder.path}: {e.strerror}") from e
        with folder.lock():
            # Again: another process may have made a run here in the meantime.
            folder._refuse_occupied(overwrite)
            folder._empty()
            folder.checkpoints_folder.mkdir(exist_ok=True)
            yield folder

    def _refuse_occupied(self, overwrite: bool) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"--out {self.path} is a file; give the name of a new folder")
        if self.config_file.exists() and not overwrite:
            raise UsageError(f"{self.path} already holds a run: continue it with `nearfar fit --resume {self.path}` or add --overwrite")
        if self.path.is_dir() and not self.config_file.exists() and not self._is_blank():
            raise UsageError(f"--out {self.path} is a folder with other files in it; give a new or empty one")

    @classmethod
    def open(cls, path: str | os.PathLike) -> RunFolder:
        """Open an existing run.

        Raises:
            UsageError: if the folder does not exist or has no config.json.
        """
        folder = cls(path)
        if not folder.config_file.is_file():
            what = "no such folder" if not folder.path.exists() else "it has no config.json"
            raise UsageError(f"{folder.path} is not a run: {what}")
        return folder

    def _is_blank(self) -> bool:
        """Return True if the folder has no run in it.

        It is empty, or a killed process left it before it wrote its configuration.
        """
        ours = {self.checkpoints_folder.name, self.split_file.name, self.tokenizer_file.name, "lock"}
        return {p.name for p in self.path.iterdir()} <= ours and not any(self.checkpoints_folder.glob("*"))

    def _empty(self) -> None:
        """Remove the files of a run. The caller holds the lock."""
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        files = (self.config_file, self.metrics_file, self.log_file, self.split_file, self.tokenizer_file, self.recipe_file)
        made = (self.path / name for name in ("report.html", "results.json", "README.md"))
        for item in (*files, *made):
            item.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints_folder, ignore_errors=True)

    def lock(self) -> AbstractContextManager[None]:
        """Lock the run, so that only one process trains in it."""
        return hold_file_lock(self.path / "lock", f"cannot lock {self.path}", f"another process is training in {self.path}")

    def write_config(self, stored_config: dict[str, Any]) -> None:
        """Write config.json."""
        write_json(self.config_file, {"format": RUN_FORMAT, **stored_config})

    def read_config(self) -> dict[str, Any]:
        """Read config.json."""
        return read_config(self.config_file)

    def write_split(self, test_ids: list[int] | None) -> None:
        """Write the ids of the test samples to split.json."""
        write_json(self.split_file, {"format": RUN_FORMAT, "test": test_ids})

    def read_split(self) -> list[int] | None:
        """Read the ids of the test samples, or None if there are none."""
        if not self.split_file.exists():
            return None
        try:
            return json.loads(self.split_file.read_text())["test"]
        except (ValueError, KeyError, TypeError) as e:
            raise NearfarError(f"{self.split_file} is damaged: {e}") from e

    def write_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Write tokenizer.json if there is a tokenizer."""
        if tokenizer is not None:
            with atomic_write(self.tokenizer_file) as f:
                f.write(tokenizer.to_json().encode())

    def read_tokenizer(self) -> Tokenizer | None:
        """Read the tokenizer of a run on texts. Other runs have none."""
        return Tokenizer.load(self.tokenizer_file) if self.tokenizer_file.exists() else None

    def write_recipe(self, text: bytes | None) -> None:
        """Copy the file of a user-defined recipe into the run.

        The copy is for readers and is never run.
        """
        if text is not None:
            with atomic_write(self.recipe_file) as f:
                f.write(text)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the lines of metrics.jsonl.

        An incomplete last line is left out. It occurs if the process was killed while it wrote.
        """
        lines = self.metrics_file.read_text().splitlines(keepends=True) if self.metrics_file.exists() else []
        found = []
        for number, line in enumerate(lines, 1):
            if line.endswith("\n"):
                try:
                    found.append(json.loads(line))
                except ValueError as e:
                    raise NearfarError(f"{self.metrics_file}, line {number}: not JSON ({e})") from e
        return found

    def rewind_metrics(self, step: int) -> None:
        """Remove the metrics of all steps after `step`.

        They are computed and written again.
        """
        kept = [m for m in self.read_metrics() if m["step"] <= step]
        with atomic_write(self.metrics_file) as f:
            f.write("".join(json.dumps(m) + "\n" for m in kept).encode())

    def write_metrics(self, values: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        try:
            with open(resolve_writable_path(self.metrics_file), "a") as f:
                f.write(json.dumps(values) + "\n")
        except OSError as e:
            message = f"cannot write {self.metrics_file}: {e.strerror}; the last checkpoint is kept"
            raise NearfarError(f"{message}. Free some disk space, then `nearfar fit --resume {self.path}`") from e


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """Read and check a config.json, for `fit --config` and all readers of a run.

    Raises:
        UsageError: if the file cannot be read, is not a run's config.json, or has another format.
    """
    try:
        config = json.loads(Path(path).read_text())
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e
    except ValueError as e:
        raise UsageError(f"{path} is not valid JSON: {e}") from e
    if not isinstance(config, dict) or "recipe" not in config:
        raise UsageError(f"{path} is not a run's config.json: it names no recipe")
    if config.get("format") != RUN_FORMAT:
        raise UsageError(
            f"{path} was written by another version of nearfar (format {config.get('format')}; this version reads format {RUN_FORMAT}): "
            "train again, or use that version"
        )
    return config


def compute_training_seconds(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the total training time in seconds, or None if it is unknown.

    The clock restarts when a run is resumed. The last values of all parts are added.
    """
    times = [m["time"] for m in metrics if "time" in m]
    ends = [now for now, after in itertools.pairwise([*times, -1.0]) if after < now]
    return sum(ends) if times else None
