"""Export of a run's encoder into a folder that another library loads without nearfar.

    onnx                    model.onnx for onnxruntime and compatible runtimes
    torch                   model.pt2, a program of torch.export: graph and weights, no code, no pickle
    transformers            a folder for AutoModel and AutoTokenizer
    sentence-transformers   a folder for SentenceTransformer: from strings to vectors

The first two targets accept every encoder of images, texts, words, sounds and frames. The last two accept
encoders that are models of transformers. A run with two encoders becomes two files, or two subfolders. To add
a target, add an entry to `TARGETS` and a file to this folder.
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
    """Write the encoder into a new folder and return the folder.

    Args:
        model: a trained model.
        target: "onnx", "torch", "transformers" or "sentence-transformers".
        out: a folder that does not exist yet or is empty. Its parent must exist.

    Raises:
        UsageError: if the target is unknown, if it cannot hold the encoder, or if the folder cannot be
            written.
    """
    if target not in TARGETS:
        raise UsageError(f"--to {target!r} is unknown: use one of {', '.join(TARGETS)}.{suggest_similar_names(target, TARGETS)}")
    if hasattr(model.recipe, "score_spans"):
        raise UsageError("a reader marks answers in passages and has no vectors to export: nearfar ask INDEX QUESTION --reader RUN uses it")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder} already exists; give the name of a new folder")
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"cannot write {folder}: there is no folder {folder.absolute().parent}")
    unfinished = folder.absolute().parent / f".{folder.name}.{os.getpid()}"
    try:
        unfinished.mkdir()
        import_module(TARGETS[target]).write_encoder(model, unfinished)
        unfinished.replace(folder)  # a folder of the final name is always complete
        flush_folder(folder.absolute().parent)
    except PermissionError as e:
        raise UsageError(f"cannot write {folder}: {e.strerror}") from e
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
