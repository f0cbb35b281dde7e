"""Encoder as one module with an example input and a description, for all export targets."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.core import Net, UsageError
from nearfar.train.model import Model

MIN_TOKENS = 3
"""Fewest tokens of a text for an exported program. Attention over fewer tokens is a special case."""


class EncoderModule(nn.Module):
    """Module from raw inputs to vectors in fp32 on the CPU, equal to `Model.encode`."""

    def __init__(self, model: Model, signature: Signature):
        super().__init__()
        self.recipe, self.tower = model.recipe, signature.tower
        self.net = _copy_used_parts(model, signature)

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of a batch, (n, d)."""
        return self.recipe.encode(self.net, x, self.tower).float()


def _copy_used_parts(model: Model, signature: Signature) -> Net:
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


@dataclass(frozen=True)
class Signature:
    """Input of an encoder."""

    name: str
    example: Tensor
    dynamic_axes: dict[int, str]
    """Axes of variable length, with their names."""
    max_length: int | None
    """Largest length of the axis t, or None."""
    preprocessing: dict[str, Any]
    """Content of preprocessing.json."""
    tower: str = "encoder"
    """Name of the encoder, as in `Model.encode`."""


def build_signatures(model: Model) -> dict[str, Signature]:
    """Return the inputs of all encoders of a run, by output file name."""
    if model.recipe.card.modality == "image-text":
        return {"image": _images(model.net.sizes), "text": _texts(model.net.sizes["text"])}
    signature, towers = build_signature(model), get_text_towers(model)
    return {tower: replace(signature, tower=tower) for tower in towers} if len(towers) > 1 else {"model": signature}


def get_text_towers(model: Model) -> tuple[str, ...]:
    """Return the names of the text encoders in the net.

    There are two if questions and passages have separate encoders.
    """
    return ("question", "passage") if hasattr(model.net, "question") and hasattr(model.net, "passage") else ("encoder",)


def build_signature(model: Model) -> Signature:
    """Return the input of a run's only encoder, or of two encoders with equal inputs."""
    modality, sizes = model.recipe.card.modality, model.net.sizes
    if modality == "image":
        return _images(sizes)
    if modality == "text":
        return _texts(sizes)
    if modality == "words":
        words = {"input": "ids", "dtype": "int64", "shape": ["n"], "meaning": "positions in the vocabulary of tokenizer.json"}
        return Signature("ids", torch.arange(4), {0: "n"}, None, words)
    if modality == "audio":
        return _sounds(sizes)
    if modality == "frames":
        return _frames(sizes)
    if modality == "image-text":
        raise UsageError("a run on images with captions has two encoders and a space in common: --to onnx and --to torch take both")
    raise UsageError(f"encoders of {modality} cannot be exported: those of images, texts, words, sounds and frames can")


def _images(sizes: Any) -> Signature:
    channels, size, standard = sizes["channels"], sizes["size"], sizes.get("standardised", sizes)
    words = {
        "input": "images",
        "dtype": "uint8",
        "shape": ["n", channels, size, size],
        "channels": "red, green, blue" if channels == 3 else "grey",
        "values": "0 to 255, as in the file",
        "resize": f"the central square, scaled to {size} x {size} pixels with antialiasing",
        "standardise": {"done_by": "the model", "mean": list(standard["mean"]), "std": list(standard["std"]), "of_values_in": [0, 1]},
    }
    pixels = torch.arange(3 * channels * size * size) * 37 % 256
    return Signature("images", pixels.to(torch.uint8).view(3, channels, size, size), {0: "n"}, None, words)


def _sounds(sizes: Any) -> Signature:
    samples = sizes["samples"]
    words = {
        "input": "samples",
        "dtype": "int16",
        "shape": ["n", samples],
        "rate": sizes["sample_rate"],
        "channels": "one: the mean of all",
        "length": f"{samples / sizes['sample_rate']:g} s; shorter clips have zeros at their end",
    }
    wave = 8000 * torch.sin(torch.arange(3 * samples).view(3, samples) * torch.tensor([[0.05], [0.2], [0.8]]))
    return Signature("samples", wave.to(torch.int16), {0: "n"}, None, words)


def _frames(sizes: Any) -> Signature:
    shape = [sizes[name] for name in ("channels", "height", "width")]
    words = {"input": "frames", "dtype": "uint8", "shape": ["n", *shape], "values": "0 to 255, as they were recorded"}
    pixels = torch.arange(3 * math.prod(shape)) * 37 % 256
    return Signature("frames", pixels.to(torch.uint8).view(3, *shape), {0: "n"}, None, words)


def _texts(sizes: Any) -> Signature:
    longest, special = max(MIN_TOKENS, -(-sizes["max_length"] // 8) * 8), sizes["special"]
    words = {
        "input": "ids",
        "dtype": "int64",
        "shape": ["n", "t"],
        "tokenizer": "tokenizer.json, for the package tokenizers",
        "cut_off_after": sizes["max_length"],
        "pad_on_the_right_with": special["pad"],
        "t": [MIN_TOKENS, longest],
    }
    ids = torch.arange(3 * longest).view(3, longest) * 7 % sizes["vocab_size"]
    return Signature("ids", ids, {0: "n", 1: "t"}, longest, words)


def write_preprocessing(model: Model, signatures: dict[str, Signature], folder: Path, loading_code: str) -> None:
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
