"""Index as the subject of the suites of `nearfar eval`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nearfar.api.suite_subject import Subject, explain_unusable_labels
from nearfar.data import Splits
from nearfar.evaluate import Features, ResultTable
from nearfar.index.base_index import Index


class IndexSubject(Subject):
    """Vectors of an index, with the labels of its rows."""

    has_table = False

    def __init__(self, index: Index):
        self.model, self.data, self.seed = None, None, 0
        self.title = f"index {index.location}"
        rows = index.list_rows()
        vectors = torch.from_numpy(index.read_vectors(rows))
        self._features = {"vectors of the index": Features(vectors, vectors)}
        found = [row["label"] for row in index.describe_rows(rows)]
        known = [label for label in found if label is not None]
        self._labels = np.unique(found, return_inverse=True)[1] if len(known) == len(found) else None
        self.protocol = {"rows": len(rows), "seed": self.seed}

    @property
    def table(self) -> ResultTable:
        raise NotImplementedError("an index has no result table")

    @property
    def features(self) -> Mapping[str, Features]:
        return self._features

    @property
    def splits(self) -> Splits:
        return Splits(None, None)

    def get_test_labels(self) -> Tensor:
        assert self._labels is not None
        return torch.from_numpy(self._labels)

    def explain_missing_labels(self) -> str:
        return explain_unusable_labels(self._labels)
