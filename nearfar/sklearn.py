r"""A scikit-learn transformer that learns its features by contrast, without labels.

    from nearfar.sklearn import Embedder
    make_pipeline(Embedder(), LogisticRegression()).fit(X, y)
    Embedder(recipe="byol", shape=(28, 28), steps=1000).fit(images.reshape(len(images), -1))

Rows of numbers: SimCLR, with feature cutoff and noise for views. A row is standardised; of each view every feature is lost (becomes its
mean, 0) with probability `cutoff`, and noise is added,

$$v = m \odot x + \sigma \epsilon, \qquad m_j \sim \mathrm{Bernoulli}(1 - p), \quad \epsilon_j \sim N(0, 1)$$

and the two views of a row must find each other among those of the batch. Images (`shape`): any image recipe of nearfar.

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
"""Of the hidden layers of the encoder of rows."""
SETTINGS_WITHOUT_EFFECT = {
    "data": "the data are fit(X)",
    "device": "give it as device=",
    **dict.fromkeys(("on_error", *(name for name in MODALITY_SETTINGS if name not in ImageInputs.used_settings)), "X is images, in memory"),
    **dict.fromkeys(("deterministic", "eval_every", "log_every", "save_every"), "nearfar.fit does that"),
}
"""Settings of a run or a machine that nothing here looks at, and why."""


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features learned by contrast.

    recipe        for rows "simclr"; for images any image recipe by name (`nearfar list`), or a Recipe
    dim           features that come out, of rows (None: 64); of images these are the encoder's, and dim is the recipe's own
    shape         (height, width), (channels, height, width) or (height, width, channels) of the image that a row holds; None: no image
    steps, batch_size, lr      the length of the training, rows a step (at most all), the learning rate
    temperature                of the loss (None: 0.5 for rows, the recipe's own for images)
    cutoff, noise              how much the views of rows are changed (None: 0.3 and 0.1)
    settings      more settings of an image recipe, its run or machine, by name: {"encoder": "resnet18"}
    random_state  a whole number names all random numbers; None or a RandomState draws one
    device        auto, cpu, cuda or cuda:N

    For images dim, temperature, cutoff and noise are hyperparameters of the recipe: one that it does not have is refused.

    After `fit`: `net_` (the trained net), `recipe_`, `n_features_in_`. Labels are used by recipes that learn from labels only.
    """

    # Without types: scikit-learn wants wrong values to be found by `fit`, and types are checked at run time where tests run.
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
            self.net_ = self.net_.double()  # so that a row's features do not depend on the rows beside it, beyond the last bits
            self._n_features_out = chosen.recipe.dim  # type: ignore[attr-defined]
        else:
            self._n_features_out = int(self.net_.encoder.dim)
        return self

    def transform(self, X: Any) -> Float64[np.ndarray, "n d"]:
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
            raise ValueError("rows of numbers are learned by recipe='simclr', without further settings; images have a shape=")
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
        """The hyperparameters that are not left to the recipe, as Python's own numbers."""
        given = {"dim": self.dim, "temperature": self.temperature, "cutoff": self.cutoff, "noise": self.noise}
        return {name: np.asarray(value).item() for name, value in given.items() if value is not None}

    def _that_apply(self, chosen: ResolvedSettings) -> dict[str, Any]:
        """Those for a recipe for images: none may be ignored, or a search over it would compare equal models."""
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
        """Rows as grey levels: the training's smallest value is black, its largest white."""
        assert self.shape is not None
        unit = ((X - self.low_) / max(self.high_ - self.low_, 1e-12)).clip(0, 1).reshape(-1, *self.shape)
        return load_all_images(unit if y is None else (unit, np.asarray(y)), image_size=size).train


@dataclass(frozen=True, eq=False)
class RowData:
    """Standardised rows, behind the interface of images."""

    rows: Float32[np.ndarray, "n f"]
    labels: None = None
    classes: tuple[str, ...] = ()
    source: str = "rows of numbers"
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, ids: np.ndarray) -> Float32[Tensor, "n f"]:
        return torch.from_numpy(self.rows[ids])

    def drop_labels(self) -> RowData:
        return self

    @property
    def fingerprint(self) -> str:
        return hash_bytes(np.ascontiguousarray(self.rows).tobytes())

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self.rows), "features": self.rows.shape[1]}


@dataclass(frozen=True)
class RowViews(Similarity):
    """Two views of each row, {"v0": (n, f), "v1": (n, f)}: feature cutoff, then noise."""

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
    """SimCLR on standardised rows, with a small MLP for an encoder."""

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
