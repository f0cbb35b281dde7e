"""Export of encoders that are models of transformers, with their tokenizer, for AutoModel."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from nearfar.core import UsageError
from nearfar.data import Tokenizer
from nearfar.encoders import HuggingFaceImage
from nearfar.encoders.text import HuggingFaceText
from nearfar.export.encoder_module import describe_shared_space, write_preprocessing, write_readme
from nearfar.modalities.encoder_signature import get_text_towers
from nearfar.train.model import Model

POOLING_CODE = {
    "cls": "model(**batch).last_hidden_state[:, 0]",
    "mean": "(states * mask).sum(1) / mask.sum(1)  # states = model(**batch).last_hidden_state; mask = batch.attention_mask[..., None]",
    "first-last": "the mean over tokens, as attention_mask has them, of (hidden[1] + hidden[-1]) / 2; "
    "hidden = model(**batch, output_hidden_states=True).hidden_states",
}


def write_encoder(model: Model, folder: Path) -> None:
    """Write a transformers folder for each encoder."""
    write_towers(model, folder, _write_tower)


def write_towers(model: Model, folder: Path, write_tower: Callable[[Model, str, Path], None]) -> None:
    """Write the encoder of the run, or two encoders into subfolders.

    The subfolders have the names of the encoders: question and passage.
    """
    towers = get_text_towers(model)
    if len(towers) == 1:
        return write_tower(model, towers[0], folder)
    for tower in towers:
        (folder / tower).mkdir()
        write_tower(model, tower, folder / tower)
    text = f"{describe_shared_space(*towers)} Each is a folder with a whole model; its README.md shows how it is loaded."
    write_readme(model, folder, text, "Two encoders")


def describe_text_encoder(tower: str) -> str:
    """Return the subject of the README sentence."""
    return "An encoder" if tower == "encoder" else f"An encoder of {tower}s,"


def _write_tower(model: Model, tower: str, folder: Path) -> None:
    encoder = getattr(model.net, tower)
    if isinstance(encoder, HuggingFaceText):
        if find_head_layer(model, tower) is not None:
            raise UsageError(
                "--to transformers: this run's vectors come from a layer after the encoder, which AutoModel has no place for: "
                "--to sentence-transformers keeps it"
            )
        write_text_model(model, tower, folder)
        text = (
            f"`AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load it. Vectors are\n\n    {POOLING_CODE[encoder.pooling]}"
        )
        write_readme(model, folder, text, describe_text_encoder(tower))
    elif isinstance(encoder, nn.Sequential) and isinstance(body := encoder[-1], HuggingFaceImage):
        _write_image_model(model, body, folder)
    else:
        raise UsageError(f"--to transformers: the encoder {model.config.encoder} is not a model of transformers; use --to onnx or torch")


def write_text_model(model: Model, tower: str, folder: Path) -> None:
    """Write the weights as safetensors, the configuration and the tokenizer."""
    copy.deepcopy(getattr(model.net, tower).model).cpu().save_pretrained(folder)
    assert model.tokenizer is not None
    _fast_tokenizer(model.tokenizer, model.net.sizes["max_length"]).save_pretrained(folder)


def _fast_tokenizer(tokenizer: Tokenizer, max_length: int) -> Any:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    engine = tokenizers.Tokenizer.from_str(tokenizer.definition)
    special: dict[str, Any] = {f"{name}_token": engine.id_to_token(i) for name, i in tokenizer.special_ids.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=engine,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        **special,
    )


@torch.no_grad()
def find_head_layer(model: Model, tower: str) -> nn.Linear | None:
    """Return the linear layer before a tanh that gives this run's vectors.

    Returns None if the vectors are those of the encoder itself.

    Raises:
        UsageError: if other layers follow the encoder.
    """
    signatures = model.modality.build_signatures(model)
    net, ids = model.net, signatures.get(tower, signatures[min(signatures)]).example.to(model.device)
    plain, vectors = getattr(net, tower)(ids), model.recipe.encode(net, ids, tower)
    if plain.shape == vectors.shape and torch.equal(plain, vectors):
        return None
    head = getattr(net, "head", None)
    if isinstance(head, nn.Sequential) and [type(layer) for layer in head] == [nn.Linear, nn.Tanh] and torch.equal(head(plain), vectors):
        return cast(nn.Linear, head[0])
    raise UsageError(
        f"{type(model.recipe).__name__} computes its vectors with custom steps after the encoder; --to onnx and --to torch take it"
    )


def _write_image_model(model: Model, body: HuggingFaceImage, folder: Path) -> None:
    (signature,) = model.modality.build_signatures(model).values()
    standard = model.net.sizes.get("standardised", model.net.sizes)
    if body.projection is not None:
        raise UsageError(
            "--to transformers: a tower of CLIP has no place for its projection in AutoModel; --to onnx and --to torch take it"
        )
    copy.deepcopy(body.model).cpu().save_pretrained(folder)
    mean, std = standard["mean"], [max(s, 1e-3) for s in standard["std"]]
    load = (
        "import torch\nfrom transformers import AutoModel\n\n"
        'model = AutoModel.from_pretrained(".").eval()\n'
        f"mean, std = torch.tensor({mean}).view(-1, 1, 1), torch.tensor({std}).view(-1, 1, 1)\n"
        f"pixels = ((images / 255 - mean) / std).expand(-1, {body.channels}, -1, -1)\n"
        "found = model(pixel_values=pixels)\n"
        "vectors = found.pooler_output.flatten(1)  # a model without one: found.last_hidden_state.mean(1)\n"
    )
    write_preprocessing(model, {"model": signature}, folder, load)
