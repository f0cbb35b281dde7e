"""What is served: rows with vectors, names, labels and something to look at. A run's own data, or an index."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from PIL import Image

from nearfar.core import UsageError
from nearfar.data.common.stores import digest
from nearfar.index.model_identity import fingerprint
from nearfar.server.cache import Cache
from nearfar.server.neighbors import Exact, Found, Query
from nearfar.train.model import Trained

Progress = Callable[[int, int], None]
PICTURED = ("image", "image-text")
"""Modalities whose samples are pictures."""
LARGEST_PICTURE = 192
"""Pixels a side of a picture that is shown; smaller ones stay as they are."""


class Collection(ABC):
    """Rows by number, from 0."""

    title: str
    trained: Trained | None
    dim: int
    cache: Cache
    rows: Int64[np.ndarray, " n"]
    """The numbers of all rows there are; those of an index may have gaps."""

    def __len__(self) -> int:
        return len(self.rows)

    @abstractmethod
    def search(self, requests: Sequence[Query]) -> list[Found]:
        """The nearest rows of each request's vectors; what a request finds does not depend on the others."""

    @abstractmethod
    def vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]: ...

    @abstractmethod
    def items(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """row, name, label, and the text where there is one. No path of this machine."""

    @abstractmethod
    def picture(self, row: int) -> bytes | None:
        """A PNG file."""

    @abstractmethod
    def sound(self, row: int) -> bytes | None:
        """A WAV file."""

    @abstractmethod
    def labels(self) -> list[str | None]:
        """Of every row, in the order of `rows`."""

    def splits(self) -> list[str] | None:
        """Of every row, "train" or "test", where that is known."""
        return None

    @cached_property
    def modality(self) -> str:
        return self.trained.recipe.card.modality if self.trained else "vectors"


class RunCollection(Collection):
    """The samples of a run's own data (or of others), in the order of `nearfar embed`."""

    def __init__(self, trained: Trained, data: Any = None, progress: Progress | None = None):
        self.trained, run = trained, trained.run
        source = run.data if data is None else data
        if not source:
            raise UsageError("this run was trained on an array: say which data to serve (--data)")
        self.own = data is None
        self.parts = trained.inputs.all(source, run, progress)
        self.starts = np.cumsum([0, *(len(part) for part in self.parts)])
        self.rows = np.arange(self.starts[-1])
        self.title = f"{trained.recipe.card.title} on {Path(str(source)).name}"
        marks = [getattr(part, "fingerprint", None) or repr([part.name(i) for i in range(len(part))]) for part in self.parts]
        stamp = digest(fingerprint(trained).encode(), *(mark.encode() for mark in marks))
        assert trained.folder is not None
        self.cache = Cache(trained.folder.path / "explorer", stamp)
        self.features = self.cache.of("vectors", lambda: self._encode(progress))
        self.dim = self.features.shape[1]
        self.exact = Exact(self.features)

    def _encode(self, progress: Progress | None) -> Float32[np.ndarray, "n d"]:
        assert self.trained is not None
        return torch.cat([self.trained.encode(part, progress=progress) for part in self.parts]).numpy()

    def search(self, requests: Sequence[Query]) -> list[Found]:
        return self.exact(requests)

    def vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]:
        return self.features[rows]

    def place(self, row: int) -> tuple[Any, int]:
        """The part that holds a row, and where."""
        part = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.parts[part], int(row - self.starts[part])

    def items(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        return [self._item(int(row)) for row in rows]

    def _item(self, row: int) -> dict[str, Any]:
        part, i = self.place(row)
        y = class_numbers(part)
        item = {"row": row, "name": _plain(part.name(i)), "label": None if y is None else part.classes[y[i]]}
        return item | ({"text": part.texts(np.array([i]))[0]} if hasattr(part, "texts") else {})

    def picture(self, row: int) -> bytes | None:
        """An image; of a sound its spectrogram."""
        part, i = self.place(row)
        if self.modality == "audio":
            return spectrogram(part.read(np.array([i]))[0].numpy(), part.rate)
        return png(part.read(np.array([i]))[0].cpu().numpy()) if self.modality in PICTURED else None

    def sound(self, row: int) -> bytes | None:
        part, i = self.place(row)
        return wav(part.read(np.array([i]))[0].numpy(), part.rate) if self.modality == "audio" else None

    def labels(self) -> list[str | None]:
        found: list[str | None] = []
        for part in self.parts:
            y = class_numbers(part)
            found += [None] * len(part) if y is None else [part.classes[i] for i in y]
        return found

    def splits(self) -> list[str] | None:
        """As the run divided its own data: by the source's own parts, or by the test rows that it stored."""
        assert self.trained is not None
        test = self.trained.folder.split() if self.own and self.trained.folder else None
        if len(self.parts) == 2:
            return ["train"] * len(self.parts[0]) + ["test"] * len(self.parts[1])
        if not test or max(test) >= len(self):
            return None
        names = np.full(len(self), "train", dtype=object)
        names[test] = "test"
        return names.tolist()


class IndexCollection(Collection):
    """An index that `nearfar index` built. Each request is searched for by itself: its answer is that of the index alone."""

    def __init__(self, index: Any, trained: Trained | None):
        self.index, self.trained = index, trained
        self.title, self.dim = Path(index.where).name, index.dim
        self.rows = np.setdiff1d(np.arange(index.ever), getattr(index, "deleted", np.zeros(0, np.int64)))
        stamp = digest(repr((len(index), index.ever, index.kind, index.metric)).encode(), self.vectors(self.rows).tobytes())
        folder = Path(index.where)
        self.cache = Cache(folder.parent / f"{folder.name}.explorer", stamp)

    def search(self, requests: Sequence[Query]) -> list[Found]:
        hits = [self.index.search(request.vectors, min(request.k, len(self.index))) for request in requests]
        return [Found(h.scores, h.rows) for h in hits]

    def vectors(self, rows: Int64[np.ndarray, " m"]) -> Float32[np.ndarray, "m d"]:
        return self.index.vectors(rows)

    def items(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        found = self.index.items(np.asarray(rows, dtype=np.int64))
        return [
            {"row": i["row"], "name": _plain(i["name"]), "label": i["label"]} | ({"text": i["text"]} if "text" in i else {}) for i in found
        ]

    def _path(self, row: int) -> str | None:
        return self.index.items([row])[0].get("path")

    def picture(self, row: int) -> bytes | None:
        (kept,) = self.index.pictures([row])
        path = self._path(row)
        if self.modality == "audio":
            heard = self._heard(row)
            return None if heard is None else spectrogram(*heard)
        if kept is not None or path is None or self.modality not in PICTURED:
            return kept
        try:
            with Image.open(path, formats=("JPEG", "PNG", "WEBP", "BMP", "GIF")) as image:
                image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
                return _file(image.convert("RGB"))
        except OSError:
            return None

    def sound(self, row: int) -> bytes | None:
        heard = self._heard(row)
        return None if heard is None else wav(*heard)

    def _heard(self, row: int) -> tuple[np.ndarray, int] | None:
        """A sound from its file: one channel of int16, and its rate."""
        path = self._path(row)
        if path is None or self.modality != "audio":
            return None
        import soundfile

        try:
            wave, rate = soundfile.read(path, dtype="int16", always_2d=True, frames=1 << 22)
        except (soundfile.SoundFileError, OSError):
            return None
        return wave[:, 0], rate

    def labels(self) -> list[str | None]:
        return [item["label"] for item in self.index.items(self.rows)]


def class_numbers(part: Any) -> np.ndarray | None:
    """For each sample the position of its class, where it has exactly one."""
    labels = getattr(part, "labels", None)
    return labels if labels is not None and part.classes and np.ndim(labels) == 1 else None


def _plain(name: str) -> str:
    """Names are relative to their source; of one that is not, the last part alone is anybody's business."""
    return Path(name).name if Path(name).is_absolute() else name


def png(pixels: np.ndarray) -> bytes:
    """(c h w), grey or colour."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
    return _file(image)


def _file(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def spectrogram(clip: np.ndarray, rate: int) -> bytes:
    """A sound as a picture."""
    from nearfar.modalities.audio import pictures

    return png((pictures(torch.from_numpy(np.ascontiguousarray(clip))[None], rate)[0] * 255).byte().numpy())


def wav(clip: np.ndarray, rate: int) -> bytes:
    """One channel of int16."""
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.ascontiguousarray(clip, dtype="<i2").tobytes())
    return file.getvalue()
