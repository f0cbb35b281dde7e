"""Data of a trained model: its own splits, and views drawn as in training."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nearfar.core import Plan, RandomKey, Rows, TrainConfig, UsageError
from nearfar.core.modality import ViewPair
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits
from nearfar.train.model import Model
from nearfar.train.run_folder import RunFolder

MAX_PAIRS = 24
"""Maximum number of positive pairs in a report."""


def load_model_splits(model: Model, data: Any = None, progress: ProgressCallback | None = None) -> Splits:
    """Load the run's own data or other data, at the run's size.

    The run's own data are split as in training. Data under another name may be the run's own data, too, for
    example with labels added. A new split would depend on the labels and would test on samples from the
    training. The run's split is therefore used for such data.

    Args:
        model: trained model.
        data: other data. None means the run's own data.
        progress: function called with the number of samples read and in total.

    Raises:
        UsageError: if the run's data have changed since the training, or cannot be opened again.
    """
    config = model.config
    source = get_training_data_source(config, model.run_folder) if data is None else data
    if isinstance(source, (str, os.PathLike)) and os.path.abspath(os.path.expanduser(source)) == os.path.abspath(config.data):
        splits = model.inputs.load_splits(source, config, model.test_ids, progress)
        if model.data_fingerprint and splits.train.fingerprint != model.data_fingerprint:
            since = f"{config.data} has changed since {_called(model.run_folder)} was trained"
            raise UsageError(f"{since}: test samples may have been used for training")
        return splits
    splits = model.inputs.load_splits(source, config, None, progress)
    if model.test_ids is None or splits.test_ids is None or splits.test_ids == model.test_ids:
        return splits
    if len(splits.train) + len(splits.test_ids) != model.net.sizes["n"] + len(model.test_ids):
        return splits
    as_trained = model.inputs.load_splits(source, config, model.test_ids, progress)
    return as_trained if as_trained.train.fingerprint == model.data_fingerprint else splits


def get_training_data_source(config: TrainConfig, folder: RunFolder | None) -> str:
    """Return the path or name of the run's training data.

    Raises:
        UsageError: if the run was trained on an array.
    """
    if not config.data:
        raise UsageError(f"{_called(folder)} was trained on an array: pass the data again (data=…, or --data)")
    return config.data


def _called(folder: RunFolder | None) -> str:
    return str(folder.path) if folder else "this run"


def draw_test_views(model: Model, data: Any, count: int) -> ViewPair | None:
    """Draw two views of `count` samples with separate random numbers.

    The samples come from all parts of the data, which may be sorted by class. Views are drawn as in training.
    Returns None if the recipe does not draw two views.
    """
    rng_key = RandomKey(model.config.seed)("evaluate", "views")
    try:
        things = model.recipe.similarity(model.net).count(data)
    except UsageError:  # the data lack labels or the like, which views do not need
        things = len(data)
    ids = np.sort(rng_key("rows").permutation(things)[:count])
    return _two_views(model, data, Rows(ids, ids, ids), rng_key)


def draw_first_pairs(model: Model, data: Any) -> ViewPair | None:
    """Return the first positive pairs of the first training step.

    Rows, random keys and views are the same as in training. Returns None if the recipe does not draw two
    views.
    """
    rng_key = RandomKey(model.config.seed)
    count = model.recipe.similarity(model.net).count(data)
    rows = Plan(count, model.config.batch_size or 1, rng_key).get_rows(0)[:MAX_PAIRS]
    return _two_views(model, data, rows, rng_key("view"))


def _two_views(model: Model, data: Any, rows: Rows, rng_key: RandomKey) -> ViewPair | None:
    similarity = model.recipe.similarity(model.net)
    views = similarity.view(similarity.read(data, rows, RandomKey(model.config.seed)("read")), rows, rng_key)
    return (views["v0"], views["v1"]) if "v1" in views else None
