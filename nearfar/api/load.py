"""Loading of trained models: `nearfar.load`."""

from __future__ import annotations

import os

from nearfar.modalities import find_modality
from nearfar.train.model import Model, load_model
from nearfar.train.user_recipes import TrustedRecipes


def load(path: str | os.PathLike, device: str = "auto", recipe: TrustedRecipes = None) -> Model:
    """Load the trained model of a run from its newest undamaged checkpoint.

    Args:
        path: the run.
        device: "auto", "cpu", "cuda" or "cuda:N".
        recipe: file or class of a user-defined recipe.

    Raises:
        NearfarError: if the path is not a run, has no checkpoint, or needs a recipe that was not given.
    """
    return load_model(path, find_modality, device, recipe)
