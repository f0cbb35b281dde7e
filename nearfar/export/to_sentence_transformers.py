"""Export to a SentenceTransformer folder: tokenizer, transformer, pooling and an optional dense layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from nearfar.core import UsageError
from nearfar.encoders.text import HuggingFaceText
from nearfar.export.encoder_module import write_readme
from nearfar.export.to_transformers import describe_text_encoder, find_head_layer, write_text_model, write_towers
from nearfar.train.model import Model

MODULE_PACKAGE = "sentence_transformers.models"


def write_encoder(model: Model, folder: Path) -> None:
    """Write a SentenceTransformer folder for each text encoder."""
    write_towers(model, folder, _write_tower)


def _write_tower(model: Model, tower: str, folder: Path) -> None:
    encoder = getattr(model.net, tower)
    if not isinstance(encoder, HuggingFaceText):
        raise UsageError(
            f"--to sentence-transformers: the encoder {model.config.encoder} is not a text model of transformers; use --to onnx or torch"
        )
    if encoder.pooling == "first-last":
        raise UsageError("--to sentence-transformers: it has no pooling over the first and last layers; --to onnx and --to torch take it")
    head = find_head_layer(model, tower)
    write_text_model(model, tower, folder)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.net.sizes["max_length"], "do_lower_case": False})
    _write_json(folder / "1_Pooling" / "config.json", _pooling(encoder))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if head is not None:
        _write_dense(head, folder / "2_Dense")
        modules.append(("2_Dense", "Dense"))
    rows = [{"idx": i, "name": str(i), "path": path, "type": f"{MODULE_PACKAGE}.{kind}"} for i, (path, kind) in enumerate(modules)]
    _write_json(folder / "modules.json", rows)
    text = '```python\nfrom sentence_transformers import SentenceTransformer\n\nvectors = SentenceTransformer(".").encode(["a text"])\n```'
    write_readme(model, folder, text, describe_text_encoder(tower))


def _pooling(encoder: HuggingFaceText) -> dict[str, Any]:
    return {
        "word_embedding_dimension": encoder.dim,
        "pooling_mode_cls_token": encoder.pooling == "cls",
        "pooling_mode_mean_tokens": encoder.pooling == "mean",
    }


def _write_dense(layer: nn.Linear, folder: Path) -> None:
    sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
    _write_json(folder / "config.json", {**sizes, "activation_function": "torch.nn.modules.activation.Tanh"})
    weights = {f"linear.{name}": t.detach().cpu().contiguous() for name, t in layer.state_dict().items()}
    save_file(weights, folder / "model.safetensors")


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
