"""Table modality: rows of numbers.

Standardized columns and their principal components are the baselines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Modality, ViewPair
from nearfar.data import Tokenizer
from nearfar.data.table.dataset import TableRows, format_values
from nearfar.data.table.inputs import TableInputs
from nearfar.data.table.recognize import looks_like_table
from nearfar.encoders.table import MLP_WIDTH, StandardizeColumns
from nearfar.evaluate import Features
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.train.model import Model

MAX_TRAIN_ROWS = 50_000
"""Largest number of training rows for probes and baselines, which are computed in memory."""


class TableModality(Modality):
    """Rows of numbers."""

    name = "table"
    plural = "rows of numbers"
    settings = ("columns",)
    data_help = "Rows of numbers: 'iris', 'wine', 'breast-cancer', 'digits-table', or a .csv, .tsv, .parquet, .npy or .npz file."
    encoder_help = "Rows: mlp, or mlp-LAYERSxWIDTH, such as mlp-2x128. auto: mlp, 4 layers of 256 units."
    candidates = ("scarf",)
    bundled = ("iris", "wine", "breast-cancer", "digits-table")
    recognition_order = 0
    reveals_copies = True
    code_example = "rows"

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> TableInputs:
        return TableInputs(sizes)

    def recognizes(self, data: Any) -> bool:
        """Return True for bundled names, for files whose features are numbers, and for numbers in memory."""
        return looks_like_table(data)

    def select_train_samples(self, train: TableRows, rng_key: RandomKey) -> TableRows:
        return self.draw_samples(train, MAX_TRAIN_ROWS, rng_key("chosen"))

    def compute_baselines(self, train: TableRows, test: TableRows, views: ViewPair | None) -> dict[str, Features]:
        """Compute standardized columns, and their principal components: at most as many as an encoder's width."""
        sizes = train.sizes()
        standardize = StandardizeColumns(sizes["mean"], sizes["std"])
        rows = [standardize(x) for x in (read_all_rows(train), read_all_rows(test), *(view.cpu() for view in views or ()))]
        axes = compute_principal_axes(rows[0], min(train.num_features, MLP_WIDTH))
        return {
            name: Features(x[0], x[1], views=(x[2], x[3]) if views else None, standardize=False, baseline=True)
            for name, x in {"raw features, scaled": rows, "PCA, whitened": [part @ axes for part in rows]}.items()
        }

    def summarize_data(self, train: TableRows) -> str:
        return f"{len(train):,} training rows of {train.num_features:,} features"

    def build_sample_renderer(self, data: TableRows) -> Callable[[Tensor], Any]:
        return lambda ids: np.array([data.format_row(int(i)) for i in ids.reshape(-1)], dtype=object).reshape(tuple(ids.shape)).tolist()

    def render_views(self, model: Model, views: ViewPair) -> tuple[list[str], list[str]]:
        columns = tuple(model.net.sizes["columns"])
        first, second = ([format_values(row, columns) for row in view.tolist()] for view in views)
        return first, second

    def read_raw_features(self, model: Model, data: TableRows, ids: np.ndarray) -> Tensor:
        """Return the standardized columns of some rows."""
        sizes = model.net.sizes
        return StandardizeColumns(sizes["mean"], sizes["std"])(data.read(ids))

    def parse_query(self, model: Model, query: str) -> Any:
        """Convert a file, a JSON list of numbers or a JSON object of columns to rows."""
        if os.path.isfile(query):
            return query
        try:
            found = json.loads(query)
        except ValueError:
            found = None
        if not isinstance(found, (dict, list)) or not found:
            columns = model.net.sizes["columns"]
            example = json.dumps(dict.fromkeys(columns[:2], 0))
            raise UsageError(
                f"there is no file {query!r}: this index is searched with a row (a JSON list of {len(columns)} numbers, or an object with "
                f"its columns, such as {example}), with a file of rows, with row:N, or with vectors (-)"
            )
        return found if isinstance(found[0] if isinstance(found, list) else None, (dict, list)) else [found]

    def reads_query_files(self) -> bool:
        """Return False: `parse_query` reads files, which hold any number of rows."""
        return False

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        sizes = model.net.sizes
        words = {
            "input": "rows",
            "dtype": "float32",
            "shape": ["n", sizes["features"]],
            "columns": list(sizes["columns"]),
            "values": "as in the training data, without missing values",
            "standardise": {"done_by": "the model", "mean": list(sizes["mean"]), "std": list(sizes["std"])},
        }
        steps = torch.linspace(-1, 1, 3)[:, None]
        example = torch.tensor(sizes["mean"]) + steps * torch.tensor(sizes["std"])
        return {"model": EncoderSignature("rows", example, {0: "n"}, None, words)}


def read_all_rows(data: TableRows) -> Float[Tensor, "n f"]:
    """Return all rows of a dataset as float32."""
    return data.read(np.arange(len(data)))


def compute_principal_axes(rows: Float[Tensor, "n f"], count: int) -> Float[Tensor, "f k"]:
    """Compute the principal axes of rows, those of most variance first.

    Axes are scaled so that projections have variance 1. Axes without variance are 0. The largest entry of each
    axis is positive, which makes the result unique.
    """
    centered = rows.double() - rows.double().mean(0)
    variance, axes = torch.linalg.eigh(centered.T @ centered / len(rows))
    variance, axes = variance.flip(0)[:count], axes.flip(1)[:, :count]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    axes = axes * largest.sign()
    kept = variance > variance.max().clamp_min(1e-30) * 1e-10
    return torch.where(kept, axes / variance.clamp_min(1e-30).sqrt(), torch.zeros_like(axes)).float()
