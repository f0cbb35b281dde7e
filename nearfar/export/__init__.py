"""Going home with the model: a run's encoder as a folder that another library loads, without nearfar.

    onnx                    model.onnx for onnxruntime and its relatives
    torch                   model.pt2, a program of torch.export: graph and weights, no code, no pickle
    transformers            what AutoModel and AutoTokenizer load
    sentence-transformers   what SentenceTransformer loads: from strings to vectors

The first two take every encoder of images, texts, words, sounds and frames, the last two those that are models of transformers. A run with
two encoders becomes two files, or two folders within the one. A new target is one more row of `TARGETS` and a file beside this one.
"""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from nearfar.core import UsageError
from nearfar.core.errors import suggest_similar_names
from nearfar.core.files import flush_folder
from nearfar.train.model import Model

Target = Literal["onnx", "torch", "transformers", "sentence-transformers"]
TARGETS = {target: f"nearfar.export.to_{target.replace('-', '_')}" for target in get_args(Target)}

__all__ = ["TARGETS", "Target", "export_encoder"]


def export_encoder(model: Model, target: str, out: str | os.PathLike) -> Path:
    """Write the encoder into a new folder, in the form that `to` names. Returns the folder."""
    if target not in TARGETS:
        raise UsageError(f"--to {target!r} is unknown: use one of {', '.join(TARGETS)}.{suggest_similar_names(target, TARGETS)}")
    if hasattr(model.recipe, "score_spans"):
        raise UsageError("a reader marks answers in passages and has no vectors to export: nearfar ask INDEX QUESTION --reader RUN uses it")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder} is there already; give the name of a new folder")
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"cannot write {folder}: there is no folder {folder.absolute().parent}")
    unfinished = folder.absolute().parent / f".{folder.name}.{os.getpid()}"
    try:
        unfinished.mkdir()
        import_module(TARGETS[target]).write_encoder(model, unfinished)
        unfinished.replace(folder)  # a folder of that name is whole
        flush_folder(folder.absolute().parent)
    except PermissionError as e:
        raise UsageError(f"cannot write {folder}: {e.strerror}") from e
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
