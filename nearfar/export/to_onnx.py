"""An ONNX graph: for onnxruntime, on servers, telephones and in browsers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from nearfar.core import MissingExtra
from nearfar.export.encoder_module import Encode, signatures_of, write_words
from nearfar.export.to_torch import quiet
from nearfar.train.model import Trained

LOAD = """import onnxruntime

session = onnxruntime.InferenceSession("{file}.onnx")
(vectors,) = session.run(None, {{"{input}": {input}}})
"""


def write(trained: Trained, folder: Path) -> None:
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "export", "--to onnx")
    signatures = signatures_of(trained)
    for name, signature in signatures.items():
        shapes: Any = {"x": signature.axes}
        with quiet():
            torch.onnx.export(
                Encode(trained, signature), (signature.example,), folder / f"{name}.onnx", dynamo=True, dynamic_shapes=shapes,
                input_names=[signature.name], output_names=["vectors"], external_data=False, verbose=False,
            )  # fmt: skip
    write_words(trained, signatures, folder, "\n".join(LOAD.format(file=name, input=s.name) for name, s in signatures.items()))
