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
from nearfar.core import NearfarError, Net, Recipe, RuntimeConfig, TrainConfig, UsageError
from nearfar.core.errors import suggest_similar_names
from nearfar.data import Inputs, Tokenizer, build_inputs
from nearfar.train import checkpoint
from nearfar.train.encode import encode_all
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import build_net, pick_device
from nearfar.train.user_recipes import TrustedRecipes, find_user_recipe

logger = logging.getLogger("nearfar")


@dataclasses.dataclass
class Model:
    """A recipe with its trained net. `encode` is all that most users need."""

    recipe: Recipe
    config: TrainConfig
    net: Net
    step: int
    device: torch.device
    run_folder: RunFolder | None = None
    metrics: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    tokenizer: Tokenizer | None = None
    """Of a recipe for texts."""
    test_ids: list[int] | None = None
    """Which rows of its data were kept for testing; None where the data brought a split of their own."""
    data_fingerprint: str = ""
    """Of the samples it was trained on; empty where that is not known."""

    @property
    def inputs(self) -> Inputs:
        """How data are brought to this net."""
        return build_inputs(self.recipe, self.net.sizes, self.tokenizer)

    def encode(
        self, samples: Any, batch_size: int = 512, progress: Callable[[int, int], None] | None = None, tower: str = "encoder"
    ) -> Float[Tensor, "n d"]:
        """The representations of images (one image file, a list of them, or anything `open_data` takes; scaled to the run's size), of
        texts (a list of strings, or anything `open_texts` takes), or of opened data.

        Of data that bring splits, those for training come first. `tower`: another part of the net than its encoder, such as NPID's
        `query`, which ends where the loss compares.
        """
        if tower != "encoder" and not hasattr(self.net, tower):
            known = [name for name, _ in self.net.named_children()]
            raise UsageError(f"encode: the net has no {tower!r}.{suggest_similar_names(tower, known)} It has {', '.join(known)}")
        parts = self.inputs.adapt(samples)
        return torch.cat([encode_all(self.recipe, self.net, part, self.device, batch_size, progress, tower) for part in parts])

    def with_on_error(self, on_error: str | None) -> Model:
        """The same, which stops at broken samples of data ("stop") or leaves them out ("skip"); None: as the run was told."""
        return self if on_error is None else dataclasses.replace(self, config=dataclasses.replace(self.config, on_error=on_error))

    def build_untrained(self) -> Model:
        """The same net before its first step, without what --init-from gave it: random weights, or those of an hf: encoder."""
        net = build_net(self.recipe, self.config, self.net.sizes).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])

    def build_from_init(self) -> Model | None:
        """The same net before its first step, with the encoder that --init-from gave it; None without --init-from, or where that run is gone."""
        if self.config.init_from is None:
            return None
        try:
            donor = load_init_source(self.config.init_from).tensors
        except NearfarError as e:
            logger.warning("not compared with the run that this one began from: %s", e)
            return None
        net = build_net(self.recipe, self.config, self.net.sizes, donor).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])


@dataclasses.dataclass(frozen=True)
class InitSource:
    """What `--init-from` takes from a run: its weights, its encoder's name, its tokenizer. Nothing of its recipe is needed, or run."""

    config: TrainConfig
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None


def load_init_source(path: str | os.PathLike) -> InitSource:
    folder = RunFolder.open(path)
    return InitSource(read_train_config(folder.read_config(), folder.path), _newest(folder).load_tensors(), folder.read_tokenizer())


def _newest(folder: RunFolder) -> checkpoint.Checkpoint:
    found = checkpoint.find_newest_checkpoint(folder.checkpoints_folder)
    if found is None:
        raise NearfarError(f"{folder.path} has no checkpoint yet: `nearfar fit --resume {folder.path}` goes on with it")
    return found


def load(path: str | os.PathLike, device: str = "auto", recipe: TrustedRecipes = None) -> Model:
    """A run from its folder, as its newest good checkpoint left it. `recipe`: the file, or the class, of one that is not nearfar's own."""
    folder = RunFolder.open(path)
    stored_config = folder.read_config()
    found = _newest(folder)
    method, config = read_recipe(stored_config, folder.path, recipe), read_train_config(stored_config, folder.path)
    where = pick_device(device)
    sizes, fingerprint = (
        get_field(stored_config, "sizes", dict, folder.path),
        get_field(stored_config, "data.fingerprint", str, folder.path),
    )
    try:
        net = build_net(method, config, sizes, load_weights=False).to(where)
    except KeyError as e:  # it was built from these sizes before
        raise _lacking(f"sizes.{e.args[0]}", folder.path) from e
    found.load_into(net)
    net.eval()
    return Model(
        method, config, net, found.step, where, folder, folder.read_metrics(), folder.read_tokenizer(), folder.read_split(), fingerprint
    )


def read_recipe(stored_config: dict[str, Any], source: os.PathLike | str, trusted: TrustedRecipes = None) -> Recipe:
    """The recipe that a config names, with its hyperparameters. A file that defines one is code: it is run only if it is named again."""
    name = get_field(stored_config, "recipe", str, source)
    method = find_user_recipe(stored_config, source, trusted) if recipes.is_user_recipe(name) else recipes.load_method(name)
    return build_dataclass(
        method.recipe_class, get_field(stored_config, "hyperparameters", dict, source), f"hyperparameter of {method.name}"
    )


def read_train_config(stored_config: dict[str, Any], source: os.PathLike | str) -> TrainConfig:
    return build_dataclass(TrainConfig, get_field(stored_config, "train_config", dict, source), "setting of TrainConfig")


def read_runtime_config(stored_config: dict[str, Any], source: os.PathLike | str) -> RuntimeConfig:
    return build_dataclass(RuntimeConfig, get_field(stored_config, "runtime_config", dict, source), "setting of RuntimeConfig")


def get_field(stored_config: dict[str, Any], name: str, expected_type: type, source: os.PathLike | str) -> Any:
    """A field of a config; "train_config.steps" is the field `steps` of its field `train_config`."""
    found: Any = stored_config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, expected_type):
        raise _lacking(name, source)
    return found


def _lacking(name: str, source: os.PathLike | str) -> UsageError:
    return UsageError(
        f"{source}: its config.json has no proper {name!r}. Put it back (each manifest.json under checkpoints has a copy), or train anew"
    )


def build_dataclass(dataclass_type: type, values: dict[str, Any], description: str) -> Any:
    """A dataclass from plain values; an unknown name is an error that says which are known."""
    known = [f.name for f in dataclasses.fields(dataclass_type)]
    for name in values:
        if name not in known:
            raise UsageError(f"{name!r} is no {description}.{suggest_similar_names(name, known)} Known: {', '.join(known)}")
    return dataclass_type(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
