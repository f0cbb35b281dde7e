"""A trained method in the hand: load a run, encode samples."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar import recipes
from nearfar.core import Machine, NearfarError, Net, Recipe, Run, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.data import Inputs, Tokenizer, inputs_for
from nearfar.train import checkpoint
from nearfar.train.encode import encode_all
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import build_net, pick_device
from nearfar.train.user_recipes import Trusted, own_recipe

log = logging.getLogger("nearfar")


@dataclasses.dataclass
class Trained:
    """A recipe with its trained net. `encode` is all that most users need."""

    recipe: Recipe
    run: Run
    net: Net
    step: int
    device: torch.device
    folder: RunFolder | None = None
    metrics: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    tokenizer: Tokenizer | None = None
    """Of a recipe for texts."""
    test_ids: list[int] | None = None
    """Which rows of its data were kept for testing; None where the data brought a split of their own."""
    fingerprint: str = ""
    """Of the samples it was trained on; empty where that is not known."""

    @property
    def inputs(self) -> Inputs:
        """How data are brought to this net."""
        return inputs_for(self.recipe, self.net.sizes, self.tokenizer)

    def encode(
        self, samples: Any, batch: int = 512, progress: Callable[[int, int], None] | None = None, tower: str = "encoder"
    ) -> Float[Tensor, "n d"]:
        """The representations of images (one image file, a list of them, or anything `open_data` takes; scaled to the run's size), of
        texts (a list of strings, or anything `open_texts` takes), or of opened data.

        Of data that bring splits, those for training come first. `tower`: another part of the net than its encoder, such as NPID's
        `query`, which ends where the loss compares.
        """
        if tower != "encoder" and not hasattr(self.net, tower):
            known = [name for name, _ in self.net.named_children()]
            raise UsageError(f"encode: the net has no {tower!r}.{did_you_mean(tower, known)} It has {', '.join(known)}")
        parts = self.inputs.accept(samples)
        return torch.cat([encode_all(self.recipe, self.net, part, self.device, batch, progress, tower) for part in parts])

    def reading(self, on_error: str | None) -> Trained:
        """The same, which stops at broken samples of data ("stop") or leaves them out ("skip"); None: as the run was told."""
        return self if on_error is None else dataclasses.replace(self, run=dataclasses.replace(self.run, on_error=on_error))

    def untrained(self) -> Trained:
        """The same net before its first step, without what --init gave it: random weights, or those of an hf: encoder."""
        net = build_net(self.recipe, self.run, self.net.sizes).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])

    def began(self) -> Trained | None:
        """The same net before its first step, with the encoder that --init gave it; None without --init, or where that run is gone."""
        if self.run.init is None:
            return None
        try:
            donor = donor_of(self.run.init).tensors
        except NearfarError as e:
            log.warning("not compared with the run that this one began from: %s", e)
            return None
        net = build_net(self.recipe, self.run, self.net.sizes, donor).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])


@dataclasses.dataclass(frozen=True)
class Donor:
    """What `--init` takes from a run: its weights, its encoder's name, its tokenizer. Nothing of its recipe is needed, or run."""

    run: Run
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None


def donor_of(path: str | os.PathLike) -> Donor:
    folder = RunFolder.open(path)
    return Donor(run_of(folder.config(), folder.path), _newest(folder).tensors(), folder.tokenizer())


def _newest(folder: RunFolder) -> checkpoint.Checkpoint:
    found = checkpoint.newest(folder.checkpoints)
    if found is None:
        raise NearfarError(f"{folder.path} has no checkpoint yet: `nearfar fit --resume {folder.path}` goes on with it")
    return found


def load(path: str | os.PathLike, device: str = "auto", recipe: Trusted = None) -> Trained:
    """A run from its folder, as its newest good checkpoint left it. `recipe`: the file, or the class, of one that is not nearfar's own."""
    folder = RunFolder.open(path)
    config = folder.config()
    found = _newest(folder)
    method, run = recipe_of(config, folder.path, recipe), run_of(config, folder.path)
    where = pick_device(device)
    sizes, fingerprint = entry(config, "sizes", dict, folder.path), entry(config, "data.fingerprint", str, folder.path)
    try:
        net = build_net(method, run, sizes, weights=False).to(where)
    except KeyError as e:  # it was built from these sizes before
        raise _lacking(f"sizes.{e.args[0]}", folder.path) from e
    found.load(net)
    net.eval()
    return Trained(method, run, net, found.step, where, folder, folder.metrics(), folder.tokenizer(), folder.split(), fingerprint)


def recipe_of(config: dict[str, Any], source: os.PathLike | str, trusted: Trusted = None) -> Recipe:
    """The recipe that a config names, with its hyperparameters. A file that defines one is code: it is run only if it is named again."""
    name = entry(config, "recipe", str, source)
    method = own_recipe(config, source, trusted) if recipes.is_own(name) else recipes.method(name)
    return fill(method.recipe, entry(config, "hyper", dict, source), f"hyperparameter of {method.name}")


def run_of(config: dict[str, Any], source: os.PathLike | str) -> Run:
    return fill(Run, entry(config, "run", dict, source), "setting of a run")


def machine_of(config: dict[str, Any], source: os.PathLike | str) -> Machine:
    return fill(Machine, entry(config, "machine", dict, source), "setting of a machine")


def entry(config: dict[str, Any], name: str, kind: type, source: os.PathLike | str) -> Any:
    """A field of a config; "run.steps" is the field `steps` of its field `run`."""
    found: Any = config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, kind):
        raise _lacking(name, source)
    return found


def _lacking(name: str, source: os.PathLike | str) -> UsageError:
    return UsageError(
        f"{source}: its config.json has no proper {name!r}. Put it back (each manifest.json under checkpoints has a copy), or train anew"
    )


def fill(kind: type, values: dict[str, Any], what: str) -> Any:
    """A dataclass from plain values; an unknown name is an error that says which are known."""
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise UsageError(f"{name!r} is no {what}.{did_you_mean(name, known)} Known: {', '.join(known)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
