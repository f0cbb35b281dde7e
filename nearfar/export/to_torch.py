"""Export to a torch.export program.

It needs only torch and runs on any device.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.export.encoder_module import EncoderModule, write_preprocessing
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.modalities.text import MIN_TOKENS
from nearfar.train.model import Model

TORCH_LOADING_CODE = """import torch

encode = torch.export.load("{file}.pt2").module()
vectors = encode({input})
"""


def write_encoder(model: Model, folder: Path) -> None:
    """Write one .pt2 file for each encoder."""
    signatures = model.modality.build_signatures(model)
    for file, signature in signatures.items():
        named = {"n": torch.export.Dim("n"), "t": torch.export.Dim("t", min=MIN_TOKENS, max=signature.max_length)}
        shapes = {"x": {axis: named[name] for axis, name in signature.dynamic_axes.items()}}
        with suppress_export_warnings():
            program = torch.export.export(_build_traceable_module(model, signature), (signature.example,), dynamic_shapes=shapes)
            program.example_inputs = None  # the only part of the file that would be pickled
            torch.export.save(program, folder / f"{file}.pt2")
    write_preprocessing(
        model, signatures, folder, "\n".join(TORCH_LOADING_CODE.format(file=name, input=s.name) for name, s in signatures.items())
    )


class PaddedEncoder(nn.Module):
    """Text encoder that pads its input to the largest number of tokens.

    Padding does not change the vectors.
    """

    def __init__(self, encode: EncoderModule, max_length: int, pad_id: int):
        super().__init__()
        self.encode, self.longest, self.pad = encode, max_length, pad_id

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of token ids, (n, d)."""
        return self.encode(F.pad(x, (0, self.longest - x.shape[1]), value=self.pad))


def _build_traceable_module(model: Model, signature: EncoderSignature) -> nn.Module:
    """Return the module to trace.

    Recurrent units get a fixed number of tokens, because torch.export supports no other.
    """
    encode = EncoderModule(model, signature)
    if signature.max_length is None or not any(isinstance(module, nn.RNNBase) for module in encode.modules()):
        return encode
    return PaddedEncoder(encode, signature.max_length, signature.preprocessing["pad_on_the_right_with"])


@contextlib.contextmanager
def suppress_export_warnings() -> Iterator[None]:
    """Suppress warnings of the exporters about future changes and missing optional packages."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)
