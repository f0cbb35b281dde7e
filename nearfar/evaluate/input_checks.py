"""Checks of evaluation inputs: features (n, d) and integer labels (n,), as tensors or arrays."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from nearfar.core import DataError

TrainX = Float[Tensor, "n d"] | Float[np.ndarray, "n d"]
TrainY = Integer[Tensor, " n"] | Integer[np.ndarray, " n"]
TestX = Float[Tensor, "m d"] | Float[np.ndarray, "m d"]
TestY = Integer[Tensor, " m"] | Integer[np.ndarray, " m"]


def check_features(x: Tensor | np.ndarray, name: str = "features") -> Float[Tensor, "n d"]:
    """Convert features to detached float32 rows.

    The rows stay on the device of the input.
    Raises `DataError` with the name of the argument if the features are empty or not finite.
    """
    rows = torch.as_tensor(x).detach().float()
    if rows.ndim != 2 or not rows.numel():
        raise DataError(f"{name}: expected a table of samples x width with at least one of each, got the shape {tuple(rows.shape)}")
    require_finite(rows, name)
    return rows


def require_finite(x: Float[Tensor, "n ..."], name: str) -> None:
    """Raise an error that names the argument and its first row with NaN or infinity."""
    finite = torch.isfinite(x)
    if finite.all():
        return
    broken = (~finite.flatten(1).all(1) if x.ndim > 1 else ~finite).nonzero()[:, 0]
    raise DataError(
        f"{name}: {len(broken)} of {len(x)} rows hold NaN or infinity, the first is row {int(broken[0])}. "
        "Did the training diverge? Try a lower learning rate"
    )


def check_labels(y: Tensor | np.ndarray, rows: Tensor, name: str = "labels") -> Integer[Tensor, " n"]:
    """Convert labels to int64 on the device of `rows`.

    Raises `DataError` if they are not one integer for each row.
    """
    labels = _check_integers(y, name).to(rows.device).long()
    if labels.shape != (len(rows),):
        raise DataError(f"{name}: {len(rows)} samples need {len(rows)} labels, got the shape {tuple(labels.shape)}")
    return labels


def check_label_matrix(labels: Tensor | np.ndarray, rows: Tensor, name: str = "groups") -> Bool[Tensor, "n g"]:
    """Convert a table of samples x groups to bool.

    The result is on the device of `rows`.
    """
    found = _check_integers(labels, name).to(rows.device).bool()
    if found.ndim != 2 or len(found) != len(rows) or not found.shape[1]:
        raise DataError(f"{name}: expected a table of {len(rows)} samples x groups, got the shape {tuple(found.shape)}")
    return found


def _check_integers(y: Tensor | np.ndarray, name: str) -> Tensor:
    try:
        found = torch.as_tensor(y)
    except (TypeError, ValueError):  # strings, or lists of different lengths
        found = None
    if found is None or found.is_floating_point() or found.is_complex():
        kind = getattr(y, "dtype", type(y).__name__)
        raise DataError(f"{name}: expected whole numbers, got {kind}; np.unique(y, return_inverse=True)[1] turns classes into numbers")
    return found


def standardize_columns(train: Float[Tensor, "n d"], *others: Float[Tensor, "_ d"]) -> tuple[Tensor, ...]:
    """Standardize the columns of all tables by the training rows.

    All tables are shifted and scaled by the mean and standard deviation of `train`. Constant columns are only
    shifted.
    """
    mean, std = measure_columns(train)
    return tuple((x - mean) / std for x in (train, *others))


def measure_columns(train: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Compute the mean and the standard deviation of each column.

    The deviation of a constant column counts as 1.
    """
    variance, mean = torch.var_mean(train, dim=0, correction=0)
    std = variance.sqrt()
    # The deviation of a constant column is the rounding error of its mean.
    # A division by it would amplify noise.
    return mean, torch.where(std > 10 * torch.finfo(train.dtype).eps * mean.abs(), std, torch.ones_like(std))
