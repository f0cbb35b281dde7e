r"""Scikit-learn transformer that learns its features by contrast, without labels.

    from nearfar.sklearn import Embedder

    make_pipeline(Embedder(), LogisticRegression()).fit(X, y)
    Embedder(recipe="byol", shape=(28, 28), steps=1000).fit(images.reshape(len(images), -1))

Rows of numbers use recipes for tables. The default is SCARF: each row must be found by its copy, in which
random features come from other rows. The encoder standardizes the columns. Images (`shape`) use recipes for
images. The default is SimCLR.

References: Bahri et al., arXiv:2106.15147 (SCARF); Chen et al., arXiv:2002.05709 (SimCLR).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.api.settings import ResolvedSettings, resolve_settings
from nearfar.core.configs import get_field_names
from nearfar.core.modality import MODALITY_SETTINGS
from nearfar.data.images.image_adapter import load_all_images
from nearfar.modalities import find_modality
from nearfar.train.encode import encode_all
from nearfar.train.model import load_init_source
from nearfar.train.session import TrainingSession, pick_device
from nearfar.train.training_loop import train

SETTINGS_WITHOUT_EFFECT = {
    "data": "the data are fit(X)",
    "device": "give it as device=",
    **dict.fromkeys(("on_error", "columns"), "X is in memory"),
    **dict.fromkeys(("deterministic", "eval_every", "log_every", "save_every"), "nearfar.fit does that"),
}
"""Settings without effect in this class, with the reason."""


@dataclass(frozen=True)
class EmbedderInput:
    """Content of the rows of X: its modality and default recipe, and how to select it."""

    modality_name: str
    default_recipe: str
    remedy: str


ROWS = EmbedderInput("table", "scarf", "leave shape= out")
IMAGES = EmbedderInput("image", "simclr", "give the shape= of the images")


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transformer with features learned by contrast.

    Args:
        recipe: a recipe for tables or, with `shape`, for images: its name (`nearfar list`) or a Recipe. None:
            "scarf" for rows, "simclr" for images.
        dim: dimension of the space in which the recipe compares views. None: the recipe's default. The number
            of output features is the width of the encoder (settings={"encoder": "mlp-4x64"}).
        shape: (height, width), (channels, height, width) or (height, width, channels) of the image in a row.
            None: rows are numbers, not images.
        steps: number of training steps.
        batch_size: rows per step, at most all rows.
        lr: learning rate.
        temperature: temperature of the loss. None: the recipe's default.
        corruption: share of the features that a view of a row loses. None: the recipe's default.
        settings: more settings of the recipe, its run or machine, by name: {"encoder": "resnet18"}.
        random_state: random seed. None or a RandomState draws one.
        device: auto, cpu, cuda or cuda:N.

    dim, temperature and corruption are hyperparameters of the recipe. `fit` raises ValueError if the recipe
    does not have them.

    After `fit`: `net_` (the trained net), `recipe_`, `n_features_in_`. Only recipes that learn from labels
    use labels.
    """

    # No type annotations: scikit-learn expects `fit` to find wrong values, and tests check types at run time.
    def __init__(
        self,
        recipe=None,
        *,
        dim=None,
        shape=None,
        steps=200,
        batch_size=256,
        lr=2e-3,
        temperature=None,
        corruption=None,
        settings=None,
        random_state=0,
        device="auto",
    ):
        self.recipe = recipe
        self.dim = dim
        self.shape = shape
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.temperature = temperature
        self.corruption = corruption
        self.settings = settings
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Embedder:
        """Train on the rows of X, (n, f).

        Recipes that learn from labels need y, (n,).
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        chosen = self._resolve(len(X))
        if chosen.recipe.uses_labels and y is None:
            raise ValueError(f"recipe={chosen.name!r} learns from labels: fit(X, y)")
        data = self._read(X, chosen.config.image_size, y if chosen.recipe.uses_labels else None, fitting=True)
        init_source = load_init_source(chosen.config.init_from) if chosen.config.init_from else None
        if init_source is not None and chosen.config.encoder == "auto":
            chosen = replace(chosen, config=replace(chosen.config, encoder=init_source.config.encoder))
        device = pick_device(self.device)
        session = TrainingSession(chosen.recipe, chosen.config, chosen.runtime, data, device, init_source.tensors if init_source else None)
        train(session)
        self.recipe_ = session.recipe
        self.net_ = session.net.cpu().eval().requires_grad_(False)
        if self.shape is None:
            self.net_ = self.net_.double()  # a row's features then depend on other rows only in the last bits
        self._n_features_out = int(self.net_.encoder.dim)
        return self

    def transform(self, X: Any) -> Float64[np.ndarray, "n d"]:
        """Return the features of the rows of X, (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.shape is None:
            with torch.no_grad():
                return self.recipe_.encode(self.net_, torch.from_numpy(X)).numpy()
        net, device = self.net_, pick_device(self.device)
        try:
            return encode_all(self.recipe_, net.to(device), self._read(X, net.sizes["size"]), device).double().numpy()
        finally:
            net.cpu()

    @property
    def _input(self) -> EmbedderInput:
        return ROWS if self.shape is None else IMAGES

    def _resolve(self, n: int) -> ResolvedSettings:
        """Return the recipe and its settings, for n rows."""
        modality, settings = find_modality(self._input.modality_name), self.settings or {}
        unused = {name: f"X holds {modality.plural}" for name in MODALITY_SETTINGS if name not in modality.settings}
        for name, reason in (unused | SETTINGS_WITHOUT_EFFECT).items():
            if name in settings:
                raise ValueError(f"settings={{{name!r}: …}} has no effect: {reason}")
        wanted = self._input.default_recipe if self.recipe is None else self.recipe
        chosen = resolve_settings(wanted, None, None, {**self._run(n), **settings})
        other = find_modality(chosen.recipe.card.modality)
        if other is not modality:
            remedies = [f", or {kind.remedy}" for kind in (ROWS, IMAGES) if kind.modality_name == other.name]
            raise ValueError(
                f"recipe={chosen.name!r} is for {other.plural}, not for {modality.plural}: "
                f"use recipe={self._input.default_recipe!r}{''.join(remedies)}"
            )
        return replace(chosen, recipe=replace(chosen.recipe, **self._list_hyperparameters(chosen)))

    def _list_hyperparameters(self, chosen: ResolvedSettings) -> dict[str, Any]:
        """Return the given hyperparameters as Python numbers.

        Unknown ones raise an error. If they were ignored, a hyperparameter search would compare equal models.
        """
        known = get_field_names(type(chosen.recipe))
        values = {"dim": self.dim, "temperature": self.temperature, "corruption": self.corruption}
        given = {name: np.asarray(value).item() for name, value in values.items() if value is not None}
        for name in given:
            if name not in known:
                raise ValueError(f"{name}= does not apply: {chosen.name!r} has no such hyperparameter. It has {', '.join(known) or 'none'}")
            if name in (self.settings or {}):
                raise ValueError(f"{name} is given twice, as {name}= and in settings=")
        return given

    def _run(self, n: int) -> dict[str, Any]:
        given = self.random_state
        seed = int(given) if isinstance(given, numbers.Integral) else int(check_random_state(given).randint(2**31 - 1))
        return {"steps": int(self.steps), "batch_size": min(int(self.batch_size), n), "lr": float(self.lr), "seed": seed}

    def _read(self, X: Float64[np.ndarray, "n f"], size: int | None, y: Any = None, fitting: bool = False) -> Any:
        """Return the rows, or the images in them, as a dataset."""
        if self.shape is None:
            (data,) = find_modality(self._input.modality_name).build_inputs().adapt(X if y is None else (X, np.asarray(y)))
            return data
        if math.prod(self.shape) != X.shape[1]:
            raise ValueError(f"shape={self.shape} has {math.prod(self.shape)} pixels, X has {X.shape[1]} features")
        if fitting:
            self.low_, self.high_ = float(X.min()), float(X.max())
        images = self._as_gray_levels(X)
        return load_all_images(images if y is None else (images, np.asarray(y)), image_size=size).train

    def _as_gray_levels(self, X: Float64[np.ndarray, "n f"]) -> Float[np.ndarray, "n ..."]:
        """Convert rows to gray levels: the smallest training value is black, the largest is white."""
        assert self.shape is not None
        return ((X - self.low_) / max(self.high_ - self.low_, 1e-12)).clip(0, 1).reshape(-1, *self.shape)
