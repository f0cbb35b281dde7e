r"""Scikit-learn transformer that learns its features by contrast, without labels.

    from nearfar.sklearn import Embedder

    make_pipeline(Embedder(), LogisticRegression()).fit(X, y)
    Embedder(recipe="byol", shape=(28, 28), steps=1000).fit(images.reshape(len(images), -1))

Rows of numbers use SimCLR with feature cutoff and noise as views. A row is standardized. In each view every
feature is dropped (set to its mean, 0) with probability p (`cutoff`), and noise is added:

$$v = m \odot x + \sigma \epsilon, \qquad m_j \sim \mathrm{Bernoulli}(1 - p), \quad \epsilon_j \sim N(0, 1)$$

Each view of a row must identify the other one among the views of the batch. Images (`shape`) use any image
recipe of nearfar.

References: Chen et al., arXiv:2002.05709 (SimCLR); Shen et al., arXiv:2009.13818 (feature cutoff).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from nearfar.api.settings import ResolvedSettings, resolve_settings
from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Rows, Similarity, Sizes, Views
from nearfar.core.configs import get_field_names
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.input_interface import MODALITY_SETTINGS
from nearfar.data.images.image_adapter import load_all_images
from nearfar.data.images.inputs import ImageInputs
from nearfar.heads import mlp
from nearfar.losses import nt_xent
from nearfar.similarity.token_views import FeatureCutoff
from nearfar.train.encode import encode_all
from nearfar.train.model import load_init_source
from nearfar.train.session import TrainingSession, pick_device
from nearfar.train.training_loop import train

HIDDEN_DIM = 128
"""Width of the hidden layers in the encoder of rows."""
SETTINGS_WITHOUT_EFFECT = {
    "data": "the data are fit(X)",
    "device": "give it as device=",
    **dict.fromkeys(("on_error", *(name for name in MODALITY_SETTINGS if name not in ImageInputs.used_settings)), "X is images, in memory"),
    **dict.fromkeys(("deterministic", "eval_every", "log_every", "save_every"), "nearfar.fit does that"),
}
"""Settings without effect in this class, with the reason."""


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transformer with features learned by contrast.

    Args:
        recipe: "simclr" for rows; for images any image recipe by name (`nearfar list`), or a Recipe.
        dim: number of output features for rows (None: 64). For images the encoder sets this number, and dim
            is a setting of the recipe.
        shape: (height, width), (channels, height, width) or (height, width, channels) of the image in a row.
            None: no image.
        steps: number of training steps.
        batch_size: rows per step, at most all rows.
        lr: learning rate.
        temperature: temperature of the loss. None: 0.5 for rows, the recipe's default for images.
        cutoff: probability of dropping a feature in a view of a row. None: 0.3.
        noise: standard deviation of the noise in a view of a row. None: 0.1.
        settings: more settings of an image recipe, its run or machine, by name: {"encoder": "resnet18"}.
        random_state: random seed. None or a RandomState draws one.
        device: auto, cpu, cuda or cuda:N.

    For images dim, temperature, cutoff and noise are hyperparameters of the recipe. `fit` raises ValueError
    if the recipe does not have them.

    After `fit`: `net_` (the trained net), `recipe_`, `n_features_in_`. Only recipes that learn from labels
    use labels.
    """

    # No type annotations: scikit-learn expects `fit` to find wrong values, and tests check types at run time.
    def __init__(
        self,
        recipe="simclr",
        *,
        dim=None,
        shape=None,
        steps=200,
        batch_size=256,
        lr=2e-3,
        temperature=None,
        cutoff=None,
        noise=None,
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
        self.cutoff = cutoff
        self.noise = noise
        self.settings = settings
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Embedder:
        """Train on the rows of X, (n, f).

        Recipes that learn from labels need y, (n,).
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        chosen, data = self._rows(X) if self.shape is None else self._images(X, y)
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
            self._n_features_out = chosen.recipe.dim  # type: ignore[attr-defined]
        else:
            self._n_features_out = int(self.net_.encoder.dim)
        return self

    def transform(self, X: Any) -> Float64[np.ndarray, "n d"]:
        """Return the features of the rows of X, (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.shape is None:
            with torch.no_grad():
                return self.net_.encoder(torch.from_numpy((X - self.mean_) / self.scale_)).numpy()
        net, device = self.net_, pick_device(self.device)
        try:
            return encode_all(self.recipe_, net.to(device), self._pixels(X, net.sizes["size"]), device).double().numpy()
        finally:
            net.cpu()

    def _rows(self, X: Float64[np.ndarray, "n f"]) -> tuple[ResolvedSettings, Any]:
        if self.recipe != "simclr" or self.settings:
            raise ValueError("rows of numbers need recipe='simclr', without further settings; images have a shape=")
        self.mean_, self.scale_ = X.mean(0), X.std(0)
        self.scale_[self.scale_ < 1e-12 * (1 + np.abs(self.mean_))] = 1.0
        data = RowData(((X - self.mean_) / self.scale_).astype(np.float32))
        recipe = RowSimCLR(**self._given())
        return resolve_settings(recipe, None, None, {"encoder": "rows", **self._run(len(data))}), data

    def _images(self, X: Float64[np.ndarray, "n f"], y: Any) -> tuple[ResolvedSettings, Any]:
        assert self.shape is not None
        if math.prod(self.shape) != X.shape[1]:
            raise ValueError(f"shape={self.shape} has {math.prod(self.shape)} pixels, X has {X.shape[1]} features")
        for name in (self.settings or {}).keys() & SETTINGS_WITHOUT_EFFECT.keys():
            raise ValueError(f"settings={{{name!r}: …}} has no effect: {SETTINGS_WITHOUT_EFFECT[name]}")
        self.low_, self.high_ = float(X.min()), float(X.max())
        chosen = resolve_settings(self.recipe, None, None, {**self._run(len(X)), **(self.settings or {})})
        if chosen.recipe.card.modality != "image":
            raise ValueError(f"recipe={chosen.name!r} is for {chosen.recipe.card.modality}, not for images")
        chosen = replace(chosen, recipe=replace(chosen.recipe, **self._that_apply(chosen)))
        if chosen.recipe.uses_labels and y is None:
            raise ValueError(f"recipe={chosen.name!r} learns from labels: fit(X, y)")
        return chosen, self._pixels(X, chosen.config.image_size, y if chosen.recipe.uses_labels else None)

    def _given(self) -> dict[str, Any]:
        """Return the given hyperparameters as Python numbers."""
        given = {"dim": self.dim, "temperature": self.temperature, "cutoff": self.cutoff, "noise": self.noise}
        return {name: np.asarray(value).item() for name, value in given.items() if value is not None}

    def _that_apply(self, chosen: ResolvedSettings) -> dict[str, Any]:
        """Return the given hyperparameters for an image recipe.

        Unknown ones raise an error. If they were ignored, a hyperparameter search would compare equal models.
        """
        given, known = self._given(), get_field_names(type(chosen.recipe))
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

    def _pixels(self, X: Float64[np.ndarray, "n f"], size: int | None, y: Any = None) -> Any:
        """Convert rows to gray levels: the smallest training value is black, the largest is white."""
        assert self.shape is not None
        unit = ((X - self.low_) / max(self.high_ - self.low_, 1e-12)).clip(0, 1).reshape(-1, *self.shape)
        return load_all_images(unit if y is None else (unit, np.asarray(y)), image_size=size).train


@dataclass(frozen=True, eq=False)
class RowData:
    """Standardized rows with the interface of an image dataset."""

    rows: Float32[np.ndarray, "n f"]
    labels: None = None
    classes: tuple[str, ...] = ()
    source: str = "rows of numbers"
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, ids: np.ndarray) -> Float32[Tensor, "n f"]:
        """Return the rows with the given ids, (n, f)."""
        return torch.from_numpy(self.rows[ids])

    def drop_labels(self) -> RowData:
        """Return the same data. Rows have no labels."""
        return self

    @property
    def fingerprint(self) -> str:
        """Return a hash of the rows."""
        return hash_bytes(np.ascontiguousarray(self.rows).tobytes())

    def sizes(self) -> dict[str, Any]:
        """Return the number of rows and of features."""
        return {"n": len(self.rows), "features": self.rows.shape[1]}


@dataclass(frozen=True)
class RowViews(Similarity):
    """Two views of each row by feature cutoff and noise: {"v0": (n, f), "v1": (n, f)}."""

    cutoff: float
    noise: float

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> Tensor:
        return data.read(rows.ids)

    def view(self, raw: Float[Tensor, "n f"], rows: Rows, rng_key: RandomKey) -> Views:
        slots, width = torch.as_tensor(rows.slots).to(raw.device), raw.shape[1]
        cut = FeatureCutoff(width, self.cutoff)
        return {
            f"v{v}": raw * cut.draw_kept_features(slots, rng_key("view", v)) + self.noise * rng_key("noise", v).normal(slots, width)
            for v in (0, 1)
        }


@dataclass(frozen=True)
class RowSimCLR(Recipe):
    """SimCLR on standardized rows with a small MLP as encoder."""

    card = Card(
        title="SimCLR on rows",
        paper="arXiv:2002.05709",
        year=2020,
        modality="rows",
        similarity="data transformation",
        query="row without some of its features, with noise",
        positive="the same row without others",
        negative="all views of the batch's other rows, 2(N-1)",
        encoder="MLP, end to end",
        head="MLP with one hidden layer",
        score="cosine / tau",
        loss="NT-Xent (InfoNCE over both views)",
        equation=r"v = m \odot x + \sigma \epsilon",
    )
    limits: ClassVar = {"cutoff": (0.0, 0.99), "noise": (0.0, math.inf), "dim": (1.0, math.inf)}

    dim: int = 64
    temperature: float = 0.5
    cutoff: float = 0.3
    noise: float = 0.1

    def similarity(self, net: Net) -> RowViews:
        return RowViews(self.cutoff, self.noise)

    def build(self, sizes: Sizes) -> Net:
        encoder = mlp(sizes["features"], HIDDEN_DIM, HIDDEN_DIM, self.dim, norm="batch")
        return Net(encoder=encoder, head=mlp(self.dim, HIDDEN_DIM, self.dim, norm="batch"))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z0, z1 = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"z0": z0, "z1": z1}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return nt_xent(z["z0"], z["z1"], self.temperature)
