"""Samples of a run or an index, with vectors, names, labels and media, for the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64

from nearfar.core import UsageError
from nearfar.core.modality import SampleMedia
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.image_stores import hash_bytes
from nearfar.index.model_identity import compute_fingerprint
from nearfar.server.cache import ArrayCache
from nearfar.server.neighbors import ExactCosineSearch, SearchHits, SearchRequest
from nearfar.train.model import Model


class Collection(ABC):
    """Rows with vectors, numbered from 0."""

    title: str
    model: Model | None
    dim: int
    cache: ArrayCache
    rows: Int64[np.ndarray, " n"]
    """Numbers of all existing rows. Those of an index may have gaps."""

    def __len__(self) -> int:
        return len(self.rows)

    @abstractmethod
    def search(self, requests: Sequence[SearchRequest]) -> list[SearchHits]:
        """Return the nearest rows of each request's vectors.

        The result of a request does not depend on the other requests.
        """

    @abstractmethod
    def get_vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]:
        """Return the vectors of some rows, (m, d)."""
        ...

    @abstractmethod
    def describe_rows(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """Return row, name, label, and the text if there is one.

        Paths of this machine are left out.
        """

    @abstractmethod
    def get_png(self, row: int) -> bytes | None:
        """Return a row as a PNG file, or None."""

    @abstractmethod
    def get_wav(self, row: int) -> bytes | None:
        """Return a row as a WAV file, or None."""

    @abstractmethod
    def get_labels(self) -> list[str | None]:
        """Return the label of every row, in the order of `rows`."""

    def get_splits(self) -> list[str] | None:
        """Return "train" or "test" for every row, or None if the split is unknown."""
        return None

    @cached_property
    def modality(self) -> str:
        """Return the modality of the model, or "vectors" without a model."""
        return self.model.modality.name if self.model else "vectors"

    @property
    def media(self) -> SampleMedia:
        """Return the media of the samples in the explorer. Vectors without a model have none."""
        return self.model.modality.media if self.model else SampleMedia()


class RunCollection(Collection):
    """Samples of a run's own data (or of other data), in the order of `nearfar embed`."""

    def __init__(self, model: Model, data: Any = None, progress: ProgressCallback | None = None):
        self.model, config = model, model.config
        source = config.data if data is None else data
        if not source:
            raise UsageError("this run was trained on an array: name the data to serve (--data)")
        self.is_own_data = data is None
        self.parts = model.inputs.load_all(source, config, progress)
        self.part_starts = np.cumsum([0, *(len(part) for part in self.parts)])
        self.rows = np.arange(self.part_starts[-1])
        self.title = f"{model.recipe.card.title} on {Path(str(source)).name}"
        marks = [getattr(part, "fingerprint", None) or repr([part.name(i) for i in range(len(part))]) for part in self.parts]
        stamp = hash_bytes(compute_fingerprint(model).encode(), *(mark.encode() for mark in marks))
        assert model.run_folder is not None
        self.cache = ArrayCache(model.run_folder.path / "explorer", stamp)
        self.features = self.cache.get_or_compute("vectors", lambda: self._encode(progress))
        self.dim = self.features.shape[1]
        self.exact_search = ExactCosineSearch(self.features)

    def _encode(self, progress: ProgressCallback | None) -> Float32[np.ndarray, "n d"]:
        assert self.model is not None
        return torch.cat([self.model.encode(part, progress=progress) for part in self.parts]).numpy()

    def search(self, requests: Sequence[SearchRequest]) -> list[SearchHits]:
        return self.exact_search(requests)

    def get_vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]:
        return self.features[rows]

    def locate_row(self, row: int) -> tuple[Any, int]:
        """Return the part that holds a row, and the position in it."""
        part = int(np.searchsorted(self.part_starts, row, side="right")) - 1
        return self.parts[part], int(row - self.part_starts[part])

    def describe_rows(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        return [self._describe_row(int(row)) for row in rows]

    def _describe_row(self, row: int) -> dict[str, Any]:
        part, i = self.locate_row(row)
        y = get_class_numbers(part)
        item = {"row": row, "name": _shorten_name(part.name(i)), "label": None if y is None else part.classes[y[i]]}
        return item | ({"text": part.get_strings(np.array([i]))[0]} if hasattr(part, "get_strings") else {})

    def get_png(self, row: int) -> bytes | None:
        assert self.model is not None
        return self.model.modality.encode_sample_png(*self.locate_row(row))

    def get_wav(self, row: int) -> bytes | None:
        assert self.model is not None
        return self.model.modality.encode_sample_wav(*self.locate_row(row))

    def get_labels(self) -> list[str | None]:
        found: list[str | None] = []
        for part in self.parts:
            y = get_class_numbers(part)
            found += [None] * len(part) if y is None else [part.classes[i] for i in y]
        return found

    def get_splits(self) -> list[str] | None:
        """Return the run's own split of its data.

        The split is that of the data source, or it follows the test rows stored in the run.
        """
        assert self.model is not None
        test = self.model.run_folder.read_split() if self.is_own_data and self.model.run_folder else None
        if len(self.parts) == 2:
            return ["train"] * len(self.parts[0]) + ["test"] * len(self.parts[1])
        if not test or max(test) >= len(self):
            return None
        names = np.full(len(self), "train", dtype=object)
        names[test] = "test"
        return names.tolist()


class IndexCollection(Collection):
    """Index that `nearfar index` built.

    Each request is searched separately, so its result equals that of the index alone.
    """

    def __init__(self, index: Any, model: Model | None):
        self.index, self.model = index, model
        self.title, self.dim = Path(index.location).name, index.dim
        self.rows = index.list_rows()
        stamp = hash_bytes(
            repr((len(index), index.next_row, index.index_type, index.metric)).encode(), self.get_vectors(self.rows).tobytes()
        )
        folder = Path(index.location)
        self.cache = ArrayCache(folder.parent / f"{folder.name}.explorer", stamp)

    def search(self, requests: Sequence[SearchRequest]) -> list[SearchHits]:
        hits = [self.index.search(request.vectors, min(request.k, len(self.index))) for request in requests]
        return [SearchHits(h.scores, h.rows) for h in hits]

    def get_vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]:
        return self.index.read_vectors(rows)

    def describe_rows(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        found = self.index.describe_rows(np.asarray(rows, dtype=np.int64))
        return [
            {"row": i["row"], "name": _shorten_name(i["name"]), "label": i["label"]} | ({"text": i["text"]} if "text" in i else {})
            for i in found
        ]

    def _get_path(self, row: int) -> str | None:
        return self.index.describe_rows([row])[0].get("path")

    def get_png(self, row: int) -> bytes | None:
        (kept,) = self.index.read_thumbnails([row])
        path = self._get_path(row)
        if kept is not None or path is None or self.model is None:
            return kept
        return self.model.modality.encode_file_png(path)

    def get_wav(self, row: int) -> bytes | None:
        path = self._get_path(row)
        return None if path is None or self.model is None else self.model.modality.encode_file_wav(path)

    def get_labels(self) -> list[str | None]:
        return [item["label"] for item in self.index.describe_rows(self.rows)]


def get_class_numbers(part: Any) -> np.ndarray | None:
    """Return the class number of each sample, or None if samples have no single class."""
    labels = getattr(part, "labels", None)
    return labels if labels is not None and part.classes and np.ndim(labels) == 1 else None


def _shorten_name(name: str) -> str:
    """Return the last part of an absolute name.

    Paths of this machine stay private.
    """
    return Path(name).name if Path(name).is_absolute() else name
