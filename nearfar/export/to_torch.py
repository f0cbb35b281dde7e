"""A program of torch.export: torch alone loads it, on any device."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.export.encoder_module import SHORTEST, Encode, Signature, signatures_of, write_words
from nearfar.train.model import Trained

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
            program = torch.export.export(_program(trained, signature), (signature.example,), dynamic_shapes=shapes)
            program.example_inputs = None  # the only thing in the file that would be pickled
            torch.export.save(program, folder / f"{file}.pt2")
    write_words(trained, signatures, folder, "\n".join(LOAD.format(file=name, input=s.name) for name, s in signatures.items()))


class Padded(nn.Module):
    """An encoder of texts that always sees the greatest number of tokens; those that are missing are padding, which does not count."""

    def __init__(self, encode: Encode, longest: int, pad: int):
        super().__init__()
        self.encode, self.longest, self.pad = encode, longest, pad

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(F.pad(x, (0, self.longest - x.shape[1]), value=self.pad))


def _program(trained: Trained, signature: Signature) -> nn.Module:
    """What is traced: recurrent units with a fixed number of tokens within, as torch.export knows no other."""
    encode = Encode(trained, signature)
    if signature.longest is None or not any(isinstance(module, nn.RNNBase) for module in encode.modules()):
        return encode
    return Padded(encode, signature.longest, signature.words["pad_on_the_right_with"])


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
