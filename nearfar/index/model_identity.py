"""Identity of the model that encoded the vectors of an index.

Vectors of two models are not comparable and must not be mixed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

import torch

from nearfar.core.errors import NearfarError
from nearfar.train.model import Model


@dataclasses.dataclass(frozen=True)
class ModelIdentity:
    """Identity of a model: path of its run folder and fingerprint of its content."""

    run: str
    """Path of the run folder, as the user gave it. Empty for a model without a folder."""
    fingerprint: str
    """Hash of weights and configuration, independent of the path."""

    def locate_run(self, run: str | os.PathLike | None, index_name: str) -> str:
        """Return the path of the model's run folder.

        Args:
            run: Present path of the run folder, if it was moved.
            index_name: Name of the index in error messages.

        Raises:
            NearfarError: The model was never saved, or the run folder is missing.
        """
        path = os.fspath(run or self.run)
        if not path:
            raise NearfarError(f"{index_name} was built with a model that was never saved: hand in vectors, or build it from a run")
        if run is None and not os.path.isdir(path):
            raise NearfarError(f"{index_name} was built with the run {path}, which does not exist: give its new location (--run RUN)")
        return path


def check_model_identity(model: Model, identity: ModelIdentity, path: str, index_name: str) -> None:
    """Raise `NearfarError` if a loaded model is not the one that encoded an index."""
    if compute_fingerprint(model) != identity.fingerprint:
        raise NearfarError(
            f"{index_name} was built with a different model than the one in {path}: their vectors cannot be compared. Build it again"
        )


def identify_model(model: Model, run: str | os.PathLike | None = None) -> ModelIdentity:
    """Identify a model by its run folder and fingerprint.

    `run` is the path as the user gave it. The default is the path of the model's run folder.
    """
    path = run or (model.run_folder.path if model.run_folder else "")
    return ModelIdentity(os.fspath(path), compute_fingerprint(model))


def compute_fingerprint(model: Model) -> str:
    """Compute a hash of everything that a vector depends on.

    It covers recipe, encoder, sizes, tokenizer and every tensor of the net.
    """
    stored_config = {
        "recipe": type(model.recipe).__name__,
        "hyperparameters": dataclasses.asdict(model.recipe),
        "encoder": model.config.encoder,
        "sizes": dict(model.net.sizes),
        "tokenizer": model.tokenizer.to_json() if model.tokenizer else None,
    }
    h = hashlib.sha256(json.dumps(stored_config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.net.state_dict().items()):
        h.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        h.update(values.view(torch.uint8).numpy().data)
    return h.hexdigest()
