"""Inputs of the table modality: rows with the features that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Sizes, TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.table.load import load_all_tables, split_table
from nearfar.data.table.table_columns import TableReadOptions


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Input loader for rows of numbers."""

    sizes: Sizes | None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        return split_table(load_all_tables(spec, self._read_options(config)), config.seed, test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        found = load_all_tables(spec, self._read_options(config))
        return [part for part in (found.train, found.test) if part is not None]

    def adapt(self, samples: Any) -> list[Any]:
        return self.load_all(samples, TrainConfig())

    def _read_options(self, config: TrainConfig) -> TableReadOptions:
        names = () if self.sizes is None else tuple(self.sizes["columns"])
        return TableReadOptions(config.columns, config.on_error, names)
