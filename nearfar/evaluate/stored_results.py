"""Results of an evaluation, stored as results.json in the run folder.

A stored result means that a run is measured only once. The file names its configuration and training step, so
results of an earlier state of the run are never used for the present one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from torch.nn import Module, ModuleList

from nearfar.core import NearfarError
from nearfar.core.files import write_json
from nearfar.evaluate import ResultTable
from nearfar.train import checkpoint
from nearfar.train.model import Model
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import get_encoder_names

RESULTS_FORMAT = 2


RESULTS_FILE_NAME = "results.json"


@dataclass(frozen=True)
class StoredResults:
    """Stored results of one run.

    `table` is None if the run cannot be measured. `problem` then gives the reason.
    """

    step: int
    parameters: int
    """Number of trained parameters, without copies such as momentum encoders."""
    encoder_parameters: int
    table: ResultTable | None
    problem: str = ""


def store_results(model: Model, table: ResultTable | None, problem: str = "") -> StoredResults:
    """Store the results of a run in its folder.

    The results are those on the run's own data. Nothing is written if the model has no run folder.
    """
    # DPR has two towers; recipes on tables build their own encoder.
    names = {"encoder", *get_encoder_names(model.recipe)}
    encoders = [part for name, part in model.net.named_children() if name in names]
    found = StoredResults(model.step, _count_parameters(model.net), _count_parameters(*encoders), table, problem)
    if model.run_folder is not None:
        measured = {} if table is None else {"protocol": table.protocol, "results": table.results}
        sizes = {"parameters": found.parameters, "encoder_parameters": found.encoder_parameters}
        about = {"format": RESULTS_FORMAT, "config": _hash_config(model.run_folder), "step": model.step, **sizes, "problem": problem}
        write_json(model.run_folder.path / RESULTS_FILE_NAME, about | measured)
    return found


def read_stored_results(folder: RunFolder) -> StoredResults | None:
    """Read the results in a run folder.

    Returns None if there are none, or if they do not belong to the newest checkpoint.
    """
    path = folder.path / RESULTS_FILE_NAME
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        newest = checkpoint.find_newest_checkpoint(folder.checkpoints_folder)
        if (found["format"], found["config"]) != (RESULTS_FORMAT, _hash_config(folder)) or newest is None or newest.step != found["step"]:
            return None
        table = ResultTable(list(found["results"]), dict(found["protocol"])) if "results" in found else None
        return StoredResults(found["step"], found["parameters"], found["encoder_parameters"], table, found["problem"])
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise NearfarError(f"{path} is damaged ({e}): delete it to measure again") from e


def _count_parameters(*parts: Module) -> int:
    return sum(p.numel() for p in ModuleList(parts).parameters() if p.requires_grad)


def _hash_config(folder: RunFolder) -> str:
    return hashlib.sha256(folder.config_file.read_bytes()).hexdigest()[:16]
