"""Export to an ONNX graph for onnxruntime, on servers, on phones and in browsers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from nearfar.core import MissingExtra
from nearfar.export.encoder_module import EncoderModule, write_preprocessing
from nearfar.export.to_torch import suppress_export_warnings
from nearfar.train.model import Model

ONNX_LOADING_CODE = """import onnxruntime

session = onnxruntime.InferenceSession("{file}.onnx")
(vectors,) = session.run(None, {{"{input}": {input}}})
"""


def write_encoder(model: Model, folder: Path) -> None:
    """Write one .onnx file for each encoder."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "export", "--to onnx")
    signatures = model.modality.build_signatures(model)
    for name, signature in signatures.items():
        shapes: Any = {"x": signature.dynamic_axes}
        with suppress_export_warnings():
            torch.onnx.export(
                EncoderModule(model, signature), (signature.example,), folder / f"{name}.onnx", dynamo=True, dynamic_shapes=shapes,
                input_names=[signature.name], output_names=["vectors"], external_data=False, verbose=False,
            )  # fmt: skip
    write_preprocessing(
        model, signatures, folder, "\n".join(ONNX_LOADING_CODE.format(file=name, input=s.name) for name, s in signatures.items())
    )
