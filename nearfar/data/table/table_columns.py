"""Choice of the columns of a table, and rejection of broken rows.

`--columns label=NAME` names the label column. All other columns are features, or those that `--columns a,b`
names. Features are numbers: columns of categories are not one-hot encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from nearfar.core.errors import UsageError, suggest_similar_names
from nearfar.data.common.arrays import as_label_array
from nearfar.data.common.text_tables import LABEL_COLUMNS
from nearfar.data.table.dataset import make_column_names
from nearfar.data.text.readers import BrokenRow

LISTED_COLUMNS = 12
"""Number of column names in an error message."""


@dataclass(frozen=True)
class TableReadOptions:
    """Options of the table readers."""

    columns: str | None = None
    """Value of --columns."""
    on_error: str = "stop"
    model_columns: tuple[str, ...] = ()
    """Features of a trained model, which the table must have. Empty for training."""


@dataclass(frozen=True)
class TableColumns:
    """Positions of the features and of the label among the columns of a table."""

    names: tuple[str, ...]
    """Names of the features."""
    features: tuple[int, ...]
    label: int | None


def choose_table_columns(available: Sequence[str], options: TableReadOptions, source: str) -> TableColumns:
    """Decide which columns are features and which is the label.

    Args:
        available: Names of all columns.
        options: Options with the value of --columns and the features of a trained model.
        source: Name of the table in error messages.

    Raises:
        UsageError: A named column does not exist, or the table lacks features of the trained model.
    """
    parts = [part.strip() for part in (options.columns or "").split(",") if part.strip()]
    named = tuple(part for part in parts if part in available or "=" not in part)
    roles = dict(part.split("=", 1) for part in parts if part not in named)
    if unknown := roles.keys() - {"label"}:
        raise UsageError(f"--columns {options.columns}: {min(unknown)!r} is not a role; use label=NAME")
    taken = {*named, *options.model_columns}
    label = roles.get("label") or next((name for name in LABEL_COLUMNS if name in available and name not in taken), None)
    for name in (*named, *roles.values()):
        if name not in available:
            raise UsageError(f"--columns: {source} has no column {name!r}.{suggest_similar_names(name, available)} {_list(available)}")
    features = named or tuple(name for name in available if name != label)
    if options.model_columns:
        features = _match_model_columns(options.model_columns, features, available, source)
    if not features:
        raise UsageError(f"{source} has no column of features. {_list(available)}")
    position = {name: j for j, name in enumerate(available)}
    return TableColumns(features, tuple(position[name] for name in features), None if label is None else position[label])


def _match_model_columns(wanted: tuple[str, ...], features: tuple[str, ...], available: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the columns of a trained model, by name or by position.

    The position counts if the names of one side are x1, x2, …
    """
    if set(wanted) <= set(available):
        return wanted
    if len(features) == len(wanted) and make_column_names(len(wanted)) in (wanted, features):
        return features
    if make_column_names(len(features)) == features:
        raise UsageError(f"{source} has {len(features)} features, and this model was trained on {len(wanted)}")
    missing = next(name for name in wanted if name not in available)
    raise UsageError(f"{source} has no column {missing!r}, which this model was trained on. {_list(available)}")


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_COLUMNS} more" if len(names) > LISTED_COLUMNS else ""
    return f"It has {', '.join(names[:LISTED_COLUMNS])}{more}"


def build_text_column_error(place: str, name: str, example: Any, numeric: Iterable[str]) -> UsageError:
    """Build the error for a feature column that holds text.

    Args:
        place: File and first line of the text.
        name: Name of the column.
        example: Value that is not a number.
        numeric: Names of the columns that hold numbers.
    """
    chosen = list(numeric)
    advice = f"name the columns of numbers (--columns {','.join(chosen[:2])}{',…' if len(chosen) > 2 else ''}), or " if chosen else ""
    return UsageError(
        f"{place}: the column {name!r} holds text ({example!r}), and features must be numbers: {advice}"
        f"name it as the label (--columns label={name}). Columns of categories are not one-hot encoded"
    )


@dataclass
class RowRejections:
    """Rows that cannot be used: the first stops reading, or all are listed."""

    on_error: str
    skipped: list[str] = field(default_factory=list)

    def add(self, place: str, reason: str) -> None:
        """Raise `BrokenRow` or list the row, as `on_error` says."""
        if self.on_error == "stop":
            raise BrokenRow(f"{place}: {reason}. Repair it, or leave such rows out with --on-error skip")
        self.skipped.append(f"{place}: {reason}")


def find_finite_rows(
    values: Float[np.ndarray, "n f"],
    columns: TableColumns,
    rejections: RowRejections,
    place: Callable[[int], str],
    cell: Callable[[int, int], Any],
) -> Bool[np.ndarray, " n"]:
    """Return True for each row without NaN and infinity, and reject the other rows.

    Args:
        values: Features of the rows, NaN where a cell is missing or not a number.
        columns: Names of the features.
        rejections: Gets the broken rows.
        place: Function that names a row of `values`.
        cell: Function that returns the original content of a cell of `values`.
    """
    finite = np.isfinite(values)
    whole = np.asarray(finite.all(1))
    for i in np.flatnonzero(~whole):
        j = int(finite[i].argmin())
        rejections.add(place(int(i)), f"the column {columns.names[j]!r} {_explain_cell(cell(int(i), j))}")
    return whole


def _explain_cell(cell: Any) -> str:
    if is_missing(cell):
        return "is empty or NaN"
    if parse_number(cell) is None:
        return f"holds {cell!r}, which is not a number"
    return f"holds {cell}, which is not a finite float32"


def is_missing(cell: Any) -> bool:
    """Return True for empty cells, NaN and the usual texts for missing values."""
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in ("", "nan", "na", "n/a", "null", "none", "?"))


def parse_number(cell: Any) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def as_float32(values: np.ndarray) -> Float[np.ndarray, "..."]:
    """Convert numbers to float32. Numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def as_table_labels(labels: Sequence[Any], source: str) -> Shaped[np.ndarray, " n"]:
    """Return the labels of all rows: whole numbers if all labels are such numbers, else texts."""
    values = np.asarray(labels)
    if all(isinstance(label, str) for label in labels):
        numbers = [parse_number(label) for label in labels]
        values = values if None in numbers else np.array(numbers, dtype=np.float64)
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.rint(values)).all():
        values = values.astype(np.int64)
    return as_label_array(values, len(labels), source, "rows")
