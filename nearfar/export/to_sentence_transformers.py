"""A folder that SentenceTransformer loads: tokenizer, transformer, pooling, and the layer after it where there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from nearfar.core import UsageError
from nearfar.encoders.text import Transformer
from nearfar.export.encoder_module import write_readme
from nearfar.export.to_transformers import head_of, of_texts, write_text_model, write_towers
from nearfar.train.model import Trained

MODULES = "sentence_transformers.models"


def write(trained: Trained, folder: Path) -> None:
    write_towers(trained, folder, _write)


def _write(trained: Trained, tower: str, folder: Path) -> None:
    encoder = getattr(trained.net, tower)
    if not isinstance(encoder, Transformer):
        raise UsageError(
            f"--to sentence-transformers: the encoder {trained.run.encoder} is no text model of transformers; --to onnx and torch take it"
        )
    if encoder.pool == "first-last":
        raise UsageError("--to sentence-transformers: it has no pooling over the first and last layers; --to onnx and --to torch take it")
    head = head_of(trained, tower)
    write_text_model(trained, tower, folder)
    _json(folder / "sentence_bert_config.json", {"max_seq_length": trained.net.sizes["length"], "do_lower_case": False})
    _json(folder / "1_Pooling" / "config.json", _pooling(encoder))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if head is not None:
        _write_dense(head, folder / "2_Dense")
        modules.append(("2_Dense", "Dense"))
    rows = [{"idx": i, "name": str(i), "path": path, "type": f"{MODULES}.{kind}"} for i, (path, kind) in enumerate(modules)]
    _json(folder / "modules.json", rows)
    text = '```python\nfrom sentence_transformers import SentenceTransformer\n\nvectors = SentenceTransformer(".").encode(["a text"])\n```'
    write_readme(trained, folder, text, of_texts(tower))


def _pooling(encoder: Transformer) -> dict[str, Any]:
    return {
        "word_embedding_dimension": encoder.dim,
        "pooling_mode_cls_token": encoder.pool == "cls",
        "pooling_mode_mean_tokens": encoder.pool == "mean",
    }


def _write_dense(layer: nn.Linear, folder: Path) -> None:
    sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
    _json(folder / "config.json", {**sizes, "activation_function": "torch.nn.modules.activation.Tanh"})
    weights = {f"linear.{name}": t.detach().cpu().contiguous() for name, t in layer.state_dict().items()}
    save_file(weights, folder / "model.safetensors")


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
