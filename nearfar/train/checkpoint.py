"""Checkpoints that survive killed processes, full disks and flipped bits.

A checkpoint is a folder `step-000000120` with

    net.safetensors         the state of the net
    optimizer-0.safetensors the tensors of each optimizer
    manifest.json           step, configuration, the optimizers' plain values, and the SHA-256 of every file
                            and of the manifest itself

It is written under a temporary name, flushed to the disk and renamed. A folder with the final name is
therefore complete. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor
from torch.optim import Optimizer

from nearfar.core import NearfarError, Net
from nearfar.core.files import flush_folder

CHECKPOINT_FORMAT = 2
MAX_CHECKPOINTS = 2
logger = logging.getLogger("nearfar")


@dataclass(frozen=True)
class Checkpoint:
    """Verified checkpoint: its folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """Return the step at which the checkpoint was saved."""
        return self.manifest["step"]

    def load_tensors(self) -> dict[str, Tensor]:
        """Load the state of the net, by name."""
        tensors = load_file(self.folder / "net.safetensors")
        return tensors | {alias: tensors[name] for alias, name in self.manifest["aliases"].items()}

    def load_into(self, net: Net, optimizers: Sequence[Optimizer] = ()) -> None:
        """Load the stored state into a net, and into its optimizers if they are given.

        Raises:
            NearfarError: if the state does not fit the net.
        """
        try:
            net.load_state_dict(self.load_tensors())
        except RuntimeError as e:
            raise NearfarError(f"{self.folder} does not fit this recipe and encoder: {str(e).splitlines()[-1].strip()}") from e
        for i, optimizer in enumerate(optimizers):
            optimizer.load_state_dict(_unflatten(load_file(self.folder / f"optimizer-{i}.safetensors"), self.manifest["optimizers"][i]))
            _match_memory_layout(optimizer)


class DamagedCheckpoint(NearfarError):
    """Checkpoint whose bytes differ from those that were written."""


def save_checkpoint(folder: Path, step: int, net: Net, optimizers: Sequence[Optimizer], stored_config: dict[str, Any]) -> Path:
    """Save a checkpoint of `step` and delete all but the newest `MAX_CHECKPOINTS`.

    Args:
        folder: folder of all checkpoints of the run.
        step: current step.
        net: net to save.
        optimizers: optimizers to save.
        stored_config: content of the run's config.json.

    Returns:
        The folder of the new checkpoint.

    Raises:
        OSError: if the checkpoint cannot be written. The old checkpoints are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"step-{step:09d}", folder / f".step-{step:09d}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        _write(temporary, step, net, optimizers, stored_config)
        if final.exists():  # a damaged checkpoint of the same step, now trained again
            shutil.rmtree(final)
        temporary.rename(final)
        flush_folder(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in sorted(folder.glob("step-*"))[:-MAX_CHECKPOINTS]:
        if old != final:
            shutil.rmtree(old, ignore_errors=True)
    return final


def _write(folder: Path, step: int, net: Net, optimizers: Sequence[Optimizer], stored_config: dict[str, Any]) -> None:
    tensors, aliases = _once(net.state_dict())
    sums = {"net.safetensors": _write_tensors(folder / "net.safetensors", tensors)}
    plain = []
    for i, optimizer in enumerate(optimizers):
        tensors, rest = _flatten(optimizer.state_dict())
        name = f"optimizer-{i}.safetensors"
        sums[name] = _write_tensors(folder / name, tensors)
        plain.append(rest)
    body = {"format": CHECKPOINT_FORMAT, "step": step, "config": stored_config, "aliases": aliases, "optimizers": plain, "sha256": sums}
    _write_bytes(folder / "manifest.json", json.dumps({"sha256": _sha256(_canonical(body)), "body": body}).encode())
    flush_folder(folder)


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write a safetensors file and return its SHA-256.

    The hash is computed from the bytes in memory, not from those on the disk.
    """
    data = serialize({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    _write_bytes(path, data)
    return _sha256(data)


def _write_bytes(path: Path, data: bytes) -> None:
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def verify_checkpoint(folder: Path) -> Checkpoint:
    """Verify a checkpoint: read every byte and compare it with the manifest.

    Raises:
        DamagedCheckpoint: if a file is missing or damaged.
        NearfarError: if the checkpoint has another format.
    """
    try:
        sealed = json.loads((folder / "manifest.json").read_text())
        body = sealed["body"]
        if sealed["sha256"] != _sha256(_canonical(body)):
            raise DamagedCheckpoint(f"{folder / 'manifest.json'} is damaged")
        for name, digest in body["sha256"].items():
            if _sha256((folder / name).read_bytes()) != digest:
                raise DamagedCheckpoint(f"{folder / name} is damaged")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DamagedCheckpoint(f"{folder} is damaged: {e}") from e
    if body["format"] != CHECKPOINT_FORMAT:
        raise NearfarError(
            f"{folder} was written by another version of nearfar (format {body['format']}; this version reads format {CHECKPOINT_FORMAT}): "
            "train again, or use that version"
        )
    return Checkpoint(folder, body)


def find_newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or None if there is none.

    Damaged checkpoints are skipped with a warning.
    """
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            return verify_checkpoint(path)
        except DamagedCheckpoint as e:
            logger.warning("%s; using the previous checkpoint", e)
    return None


def clean_checkpoints(folder: Path, step: int) -> None:
    """Clean the folder before training resumes from `step`.

    Remove the files that a killed process left behind. Rename damaged checkpoints of later steps to
    `damaged-…`.
    """
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("step-*"):
        if path > folder / f"step-{step:09d}":
            shutil.rmtree(folder / f"damaged-{path.name}", ignore_errors=True)
            path.rename(folder / f"damaged-{path.name}")


def _once(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Collect each tensor under its first name, and its other names as aliases.

    A tensor has several names if its module is part of another one, such as an encoder inside a query tower.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple, str] = {}
    for name, t in state.items():
        identity = (t.data_ptr(), t.shape, t.stride(), t.dtype)
        if t.numel() and identity in seen:
            aliases[name] = seen[identity]
        else:
            seen[identity] = name
            tensors[name] = t
    return tensors, aliases


def _flatten(state: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimizer's state_dict into tensors named `index.field` and plain values."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for index, fields in state["state"].items():
        for name, value in fields.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}.{name}"] = value.clone()
            else:
                plain.setdefault(str(index), {})[name] = value
    return tensors, {"plain": plain, "groups": state["param_groups"]}


def _unflatten(tensors: dict[str, Tensor], rest: dict[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {int(index): dict(fields) for index, fields in rest["plain"].items()}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    # JSON has no tuples. All lists but the parameters' numbers were tuples, such as Adam's betas.
    groups = [{k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in g.items()} for g in rest["groups"]]
    return {"state": state, "param_groups": groups}


def _match_memory_layout(optimizer: Optimizer) -> None:
    """Give each state tensor the strides of its parameter.

    Files hold contiguous tensors. Weights of convolutions are channels-last on CUDA, and fused optimizers
    require equal strides.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            is_elementwise = isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.ndim > 1
            if is_elementwise and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
