"""Which model the vectors of an index came from: vectors of two models must never meet."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

import torch

from nearfar.core.errors import NearfarError
from nearfar.train.model import Model, load
from nearfar.train.user_recipes import TrustedRecipes


@dataclasses.dataclass(frozen=True)
class ModelIdentity:
    """A run, by name and by content."""

    run: str
    """The path of its folder, as it was given; empty for a model that has none."""
    fingerprint: str
    """Hash of weights and configuration: the same wherever the run lies."""

    def load(self, run: str | os.PathLike | None, device: str, recipe: TrustedRecipes, index_name: str) -> Model:
        """The run, checked to be the one; `run`: where it lies now. `index` is named in errors."""
        path = os.fspath(run or self.run)
        if not path:
            raise NearfarError(f"{index_name} was built with a model that was never saved: hand in vectors, or build it from a run")
        if run is None and not os.path.isdir(path):
            raise NearfarError(f"{index_name} was built with the run {path}, which is not there: say where it lies now (--run RUN)")
        model = load(path, device, recipe)
        if compute_fingerprint(model) != self.fingerprint:
            raise NearfarError(
                f"{index_name} was built with another model than {path} holds: its vectors mean nothing to this one. Build it anew"
            )
        return model


def identify_model(model: Model, run: str | os.PathLike | None = None) -> ModelIdentity:
    """`run`: the path as the user gave it; by default that of its folder."""
    path = run or (model.run_folder.path if model.run_folder else "")
    return ModelIdentity(os.fspath(path), compute_fingerprint(model))


def compute_fingerprint(model: Model) -> str:
    """A hash of everything that decides about a vector: recipe, encoder, sizes, tokenizer, every tensor of the net."""
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
