"""Which model the vectors of an index came from: vectors of two models must never meet."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

import torch

from nearfar.core.errors import NearfarError
from nearfar.train.model import Trained, load
from nearfar.train.user_recipes import Trusted


@dataclasses.dataclass(frozen=True)
class Model:
    """A run, by name and by content."""

    run: str
    """The path of its folder, as it was given; empty for a model that has none."""
    fingerprint: str
    """Hash of weights and configuration: the same wherever the run lies."""

    def load(self, run: str | os.PathLike | None, device: str, recipe: Trusted, index: str) -> Trained:
        """The run, checked to be the one; `run`: where it lies now. `index` is named in errors."""
        path = os.fspath(run or self.run)
        if not path:
            raise NearfarError(f"{index} was built with a model that was never saved: hand in vectors, or build it from a run")
        if run is None and not os.path.isdir(path):
            raise NearfarError(f"{index} was built with the run {path}, which is not there: say where it lies now (--run RUN)")
        trained = load(path, device, recipe)
        if fingerprint(trained) != self.fingerprint:
            raise NearfarError(
                f"{index} was built with another model than {path} holds: its vectors mean nothing to this one. Build it anew"
            )
        return trained


def model_of(trained: Trained, run: str | os.PathLike | None = None) -> Model:
    """`run`: the path as the user gave it; by default that of its folder."""
    path = run or (trained.folder.path if trained.folder else "")
    return Model(os.fspath(path), fingerprint(trained))


def fingerprint(trained: Trained) -> str:
    """A hash of everything that decides about a vector: recipe, encoder, sizes, tokenizer, every tensor of the net."""
    config = {
        "recipe": type(trained.recipe).__name__,
        "hyper": dataclasses.asdict(trained.recipe),
        "encoder": trained.run.encoder,
        "sizes": dict(trained.net.sizes),
        "tokenizer": trained.tokenizer.save() if trained.tokenizer else None,
    }
    h = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(trained.net.state_dict().items()):
        h.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        h.update(values.view(torch.uint8).numpy().data)
    return h.hexdigest()
