"""An ONNX graph: for onnxruntime, on servers, telephones and in browsers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from nearfar.app.export.encoder import Encode, signature_of, write_words
from nearfar.app.export.to_torch import quiet
from nearfar.core import MissingExtra
from nearfar.train.trained import Trained

LOAD = """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(vectors,) = session.run(None, {{"{input}": {input}}})
"""


def write(trained: Trained, folder: Path) -> None:
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "export", "--to onnx")
    signature = signature_of(trained)
    shapes: Any = {"x": signature.axes}
    with quiet():
        torch.onnx.export(
            Encode(trained, signature.example), (signature.example,), folder / "model.onnx", dynamo=True, dynamic_shapes=shapes,
            input_names=[signature.name], output_names=["vectors"], external_data=False, verbose=False,
        )  # fmt: skip
    write_words(trained, signature, folder, LOAD.format(input=signature.name))
