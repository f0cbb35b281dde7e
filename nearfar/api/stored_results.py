"""What an evaluation found, kept in the run's folder as results.json, so that it is measured once.

The file says which configuration and which step it is of: results of an earlier state of the run are never taken for those of
the present one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from torch.nn import Module, ModuleList

from nearfar.api.evaluate import evaluate
from nearfar.core import NearfarError, UsageError
from nearfar.core.files import write_json
from nearfar.evaluate import Table
from nearfar.train import checkpoint
from nearfar.train.model import Trained, load
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import encoder_names
from nearfar.train.user_recipes import Trusted

FORMAT = 1
NAME = "results.json"


@dataclass(frozen=True)
class Stored:
    """One run's results. `table` is None where `problem` says why it cannot be measured."""

    step: int
    parameters: int
    """Trained ones: copies that only follow others are not counted."""
    encoder_parameters: int
    table: Table | None
    problem: str = ""


def keep(trained: Trained, table: Table | None, problem: str = "") -> Stored:
    """Write what was measured of a run on its own data into its folder, if it has one."""
    names = {"encoder", *encoder_names(trained.recipe)}  # DPR has two towers; tables make their encoder themselves
    encoders = [part for name, part in trained.net.named_children() if name in names]
    found = Stored(trained.step, _count(trained.net), _count(*encoders), table, problem)
    if trained.folder is not None:
        measured = {} if table is None else {"protocol": table.protocol, "results": table.results}
        sizes = {"parameters": found.parameters, "encoder_parameters": found.encoder_parameters}
        about = {"format": FORMAT, "config": _mark(trained.folder), "step": trained.step, **sizes, "problem": problem}
        write_json(trained.folder.path / NAME, about | measured)
    return found


def stored(folder: RunFolder) -> Stored | None:
    """The results in a run's folder, if they are of its newest checkpoint."""
    path = folder.path / NAME
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        newest = checkpoint.newest(folder.checkpoints)
        if (found["format"], found["config"]) != (FORMAT, _mark(folder)) or newest is None or newest.step != found["step"]:
            return None
        table = Table(list(found["results"]), dict(found["protocol"])) if "results" in found else None
        return Stored(found["step"], found["parameters"], found["encoder_parameters"], table, found["problem"])
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise NearfarError(f"{path} is damaged ({e}): delete it, and it is measured again") from e


def measured(
    path: str | os.PathLike,
    device: str = "auto",
    recipe: Trusted = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Stored, bool]:
    """A run's results, and whether they had to be measured now. A run that has nothing to be measured on says so in `problem`."""
    if (found := stored(RunFolder.open(path))) is not None:
        return found, False
    trained = load(path, device, recipe)
    try:
        return keep(trained, evaluate(trained, progress=progress)), True
    except UsageError as e:
        return keep(trained, None, str(e)), True


def _count(*parts: Module) -> int:
    return sum(p.numel() for p in ModuleList(parts).parameters() if p.requires_grad)


def _mark(folder: RunFolder) -> str:
    return hashlib.sha256(folder.config_file.read_bytes()).hexdigest()[:16]
