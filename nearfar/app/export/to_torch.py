"""A program of torch.export: torch alone loads it, on any device."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from nearfar.app.export.encoder import SHORTEST, Encode, signatures_of, write_words
from nearfar.train.trained import Trained

LOAD = """import torch

encode = torch.export.load("{file}.pt2").module()
vectors = encode({input})
"""


def write(trained: Trained, folder: Path) -> None:
    signatures = signatures_of(trained)
    for file, signature in signatures.items():
        named = {"n": torch.export.Dim("n"), "t": torch.export.Dim("t", min=SHORTEST, max=signature.longest)}
        shapes = {"x": {axis: named[name] for axis, name in signature.axes.items()}}
        with quiet():
            program = torch.export.export(Encode(trained, signature.example), (signature.example,), dynamic_shapes=shapes)
            program.example_inputs = None  # the only thing in the file that would be pickled
            torch.export.save(program, folder / f"{file}.pt2")
    write_words(trained, signatures, folder, "\n".join(LOAD.format(file=name, input=s.name) for name, s in signatures.items()))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters tell of their own plans for the future, and of packages that nobody asked for."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)
