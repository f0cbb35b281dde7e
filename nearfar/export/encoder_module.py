"""Encoder as one module, and the description of its input, for all export targets."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from nearfar.core import Net
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.train.model import Model


class EncoderModule(nn.Module):
    """Module from raw inputs to vectors in fp32 on the CPU, equal to `Model.encode`."""

    def __init__(self, model: Model, signature: EncoderSignature):
        super().__init__()
        self.recipe, self.tower = model.recipe, signature.tower
        self.net = _copy_used_parts(model, signature)

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of a batch, (n, d)."""
        return self.recipe.encode(self.net, x, self.tower).float()


def _copy_used_parts(model: Model, signature: EncoderSignature) -> Net:
    """Return a copy of the net without the parts that encoding does not use."""
    net, example, tower = copy.deepcopy(model.net).cpu().eval().requires_grad_(False), signature.example, signature.tower
    vectors = model.recipe.encode(net, example, tower)
    for name, part in list(net.named_children()):
        delattr(net, name)
        try:
            needed = not torch.equal(model.recipe.encode(net, example, tower), vectors)
        except AttributeError:
            needed = True
        if needed:
            setattr(net, name, part)
    return net


def write_preprocessing(model: Model, signatures: dict[str, EncoderSignature], folder: Path, loading_code: str) -> None:
    """Write preprocessing.json, the tokenizer and a README with loading code."""
    output = {"output": {"name": "vectors", "dtype": "float32", "shape": ["n", "d"]}}
    words = {name: signature.preprocessing | output for name, signature in signatures.items()}
    (folder / "preprocessing.json").write_text(json.dumps(words.get("model", words), indent=2) + "\n")
    if model.tokenizer is not None and not (folder / "tokenizer.json").exists():
        (folder / "tokenizer.json").write_text(model.tokenizer.definition, encoding="utf-8")
    text = f"preprocessing.json describes input and output.\n\n```python\n{loading_code}```"
    if len(signatures) > 1:
        write_readme(model, folder, f"{describe_shared_space(*signatures)} {text}", "Two encoders")
    else:
        write_readme(model, folder, text)


def describe_shared_space(first: str, second: str) -> str:
    """Return a sentence that two encoders share one vector space."""
    return f"`{first}` and `{second}` lead into one space: a vector of the one is compared with a vector of the other by their dot product."


def write_readme(model: Model, folder: Path, text: str, subject: str = "An encoder") -> None:
    """Write a README.md with a title, the paper and the given text."""
    card = model.recipe.card
    title = f"# {card.title}, {model.config.encoder}, {model.step:,} steps on {Path(model.config.data).name or 'an array'}"
    (folder / "README.md").write_text(f"{title}\n\n{subject} trained with nearfar ({card.paper}).\n\n{text}\n", encoding="utf-8")
