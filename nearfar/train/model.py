"""Trained models: read a run, encode samples."""

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
from nearfar.core.modality import FindModality, Modality
from nearfar.data import Inputs, Tokenizer
from nearfar.train import checkpoint
from nearfar.train.encode import encode_all
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import build_net, pick_device
from nearfar.train.user_recipes import TrustedRecipes, find_user_recipe

logger = logging.getLogger("nearfar")


@dataclasses.dataclass
class Model:
    """Recipe with its trained net. Most users only need `encode`."""

    recipe: Recipe
    config: TrainConfig
    net: Net
    step: int
    device: torch.device
    modality: Modality
    """Everything specific to the kind of data."""
    run_folder: RunFolder | None = None
    metrics: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    tokenizer: Tokenizer | None = None
    """Tokenizer of a recipe for texts."""
    test_ids: list[int] | None = None
    """Ids of the samples that were held out for testing. None if the data have their own split."""
    data_fingerprint: str = ""
    """Fingerprint of the training samples. Empty if it is unknown."""

    @property
    def inputs(self) -> Inputs:
        """Return the converter from the user's data to the input of this net."""
        return self.modality.build_inputs(self.net.sizes, self.tokenizer)

    def encode(
        self, samples: Any, batch_size: int = 512, progress: Callable[[int, int], None] | None = None, tower: str = "encoder"
    ) -> Float[Tensor, "n d"]:
        """Encode samples.

        Args:
            samples: images (one image file, a list of files, or anything `open_data` takes), which are scaled
                to the run's image size; texts (a list of strings, or anything `open_texts` takes); or opened
                data. If the data have splits, the training split comes first.
            batch_size: samples encoded together.
            progress: function called after each batch with the number of samples done and in total.
            tower: part of the net that encodes. NPID's `query`, for example, ends in the space in which the
                loss compares.

        Returns:
            The representations, (n, d).

        Raises:
            UsageError: if the net has no such tower.
        """
        if tower != "encoder" and not hasattr(self.net, tower):
            known = [name for name, _ in self.net.named_children()]
            raise UsageError(f"encode: the net has no {tower!r}.{suggest_similar_names(tower, known)} It has {', '.join(known)}")
        parts = self.inputs.adapt(samples)
        return torch.cat([encode_all(self.recipe, self.net, part, self.device, batch_size, progress, tower) for part in parts])

    def with_on_error(self, on_error: str | None) -> Model:
        """Return this model with another treatment of broken samples.

        "stop" raises an error, "skip" leaves them out, and None keeps the run's setting.
        """
        return self if on_error is None else dataclasses.replace(self, config=dataclasses.replace(self.config, on_error=on_error))

    def build_untrained(self) -> Model:
        """Build this model with its net before the first step.

        The weights that --init-from copied are left out. Weights are random, or those of an hf: encoder.
        """
        net = build_net(self.recipe, self.config, self.net.sizes).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])

    def build_from_init(self) -> Model | None:
        """Build this model with its net before the first step and the encoder from --init-from.

        Returns None if the run had no --init-from, or if the source run is gone.
        """
        if self.config.init_from is None:
            return None
        try:
            donor = load_init_source(self.config.init_from).tensors
        except NearfarError as e:
            logger.warning("not compared with the run that this run started from: %s", e)
            return None
        net = build_net(self.recipe, self.config, self.net.sizes, donor).to(self.device)
        return dataclasses.replace(self, net=net, step=0, metrics=[])


@dataclasses.dataclass(frozen=True)
class InitSource:
    """Parts of a run that `--init-from` uses: weights, encoder name and tokenizer.

    The recipe of the source run is neither needed nor run.
    """

    config: TrainConfig
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None


def load_init_source(path: str | os.PathLike) -> InitSource:
    """Load the weights, settings and tokenizer of a run for `--init-from`.

    Raises:
        NearfarError: if the path is not a run, or if it has no checkpoint.
    """
    folder = RunFolder.open(path)
    return InitSource(read_train_config(folder.read_config(), folder.path), _newest(folder).load_tensors(), folder.read_tokenizer())


def _newest(folder: RunFolder) -> checkpoint.Checkpoint:
    found = checkpoint.find_newest_checkpoint(folder.checkpoints_folder)
    if found is None:
        raise NearfarError(f"{folder.path} has no checkpoint yet: `nearfar fit --resume {folder.path}` resumes it")
    return found


def load_model(path: str | os.PathLike, find_modality: FindModality, device: str = "auto", recipe: TrustedRecipes = None) -> Model:
    """Load the trained model of a run from its newest undamaged checkpoint.

    Args:
        path: the run.
        find_modality: function that returns the modality of a name.
        device: "auto", "cpu", "cuda" or "cuda:N".
        recipe: file or class of a user-defined recipe.

    Raises:
        NearfarError: if the path is not a run, has no checkpoint, or needs a recipe that was not given.
    """
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
    except KeyError as e:  # the sizes are incomplete: the same net was built from them in training
        raise _lacking(f"sizes.{e.args[0]}", folder.path) from e
    found.load_into(net)
    net.eval()
    modality = find_modality(method.card.modality)
    stored = (folder.read_metrics(), folder.read_tokenizer(), folder.read_split(), fingerprint)
    return Model(method, config, net, found.step, where, modality, folder, *stored)


def read_recipe(stored_config: dict[str, Any], source: os.PathLike | str, trusted: TrustedRecipes = None) -> Recipe:
    """Build the recipe that a config names, with its hyperparameters.

    The file of a user-defined recipe is code. It is run only if the user names it again.

    Args:
        stored_config: content of config.json.
        source: the run or its config.json, for error messages.
        trusted: recipes that the user allows to run.
    """
    name = get_field(stored_config, "recipe", str, source)
    method = find_user_recipe(stored_config, source, trusted) if recipes.is_user_recipe(name) else recipes.load_method(name)
    return build_dataclass(
        method.recipe_class, get_field(stored_config, "hyperparameters", dict, source), f"hyperparameter of {method.name}"
    )


def read_train_config(stored_config: dict[str, Any], source: os.PathLike | str) -> TrainConfig:
    """Build the training settings from the content of config.json."""
    return build_dataclass(TrainConfig, get_field(stored_config, "train_config", dict, source), "setting of TrainConfig")


def read_runtime_config(stored_config: dict[str, Any], source: os.PathLike | str) -> RuntimeConfig:
    """Build the runtime settings from the content of config.json."""
    return build_dataclass(RuntimeConfig, get_field(stored_config, "runtime_config", dict, source), "setting of RuntimeConfig")


def get_field(stored_config: dict[str, Any], name: str, expected_type: type, source: os.PathLike | str) -> Any:
    """Return a field of a config. "train_config.steps" is `steps` in `train_config`.

    Raises:
        UsageError: if the field is missing or has another type.
    """
    found: Any = stored_config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, expected_type):
        raise _lacking(name, source)
    return found


def _lacking(name: str, source: os.PathLike | str) -> UsageError:
    return UsageError(
        f"{source}: its config.json has no valid {name!r}. Restore it (each manifest.json under checkpoints has a copy), or train again"
    )


def build_dataclass(dataclass_type: type, values: dict[str, Any], description: str) -> Any:
    """Build a dataclass from plain values.

    Args:
        dataclass_type: the dataclass.
        values: values by field name. Lists become tuples.
        description: noun for a field in the error message.

    Raises:
        UsageError: if a name is unknown. The message lists the known names.
    """
    known = [f.name for f in dataclasses.fields(dataclass_type)]
    for name in values:
        if name not in known:
            raise UsageError(f"unknown {description} {name!r}.{suggest_similar_names(name, known)} Known: {', '.join(known)}")
    return dataclass_type(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
