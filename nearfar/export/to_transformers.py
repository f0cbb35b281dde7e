"""A folder that AutoModel loads: encoders that are models of transformers, with their tokenizer."""

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
from nearfar.encoders.text import Transformer
from nearfar.export.encoder_module import one_space, signature_of, text_towers, write_readme, write_words
from nearfar.train.model import Trained

POOLING = {
    "cls": "model(**batch).last_hidden_state[:, 0]",
    "mean": "(states * mask).sum(1) / mask.sum(1)  # states = model(**batch).last_hidden_state; mask = batch.attention_mask[..., None]",
    "first-last": "the mean over tokens, as attention_mask has them, of (hidden[1] + hidden[-1]) / 2; "
    "hidden = model(**batch, output_hidden_states=True).hidden_states",
}


def write(trained: Trained, folder: Path) -> None:
    write_towers(trained, folder, _write)


def write_towers(trained: Trained, folder: Path, write_one: Callable[[Trained, str, Path], None]) -> None:
    """The run's encoder into the folder; where questions and passages have one each, into folders of these names within it."""
    towers = text_towers(trained)
    if len(towers) == 1:
        return write_one(trained, towers[0], folder)
    for tower in towers:
        (folder / tower).mkdir()
        write_one(trained, tower, folder / tower)
    text = f"{one_space(*towers)} Each is a folder with a whole model; its README.md shows how it is loaded."
    write_readme(trained, folder, text, "Two encoders")


def of_texts(tower: str) -> str:
    return "An encoder" if tower == "encoder" else f"An encoder of {tower}s,"


def _write(trained: Trained, tower: str, folder: Path) -> None:
    encoder = getattr(trained.net, tower)
    if isinstance(encoder, Transformer):
        if head_of(trained, tower) is not None:
            raise UsageError(
                "--to transformers: this run's vectors come from a layer after the encoder, which AutoModel has no place for: "
                "--to sentence-transformers keeps it"
            )
        write_text_model(trained, tower, folder)
        text = f"`AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load it. Vectors are\n\n    {POOLING[encoder.pool]}"
        write_readme(trained, folder, text, of_texts(tower))
    elif isinstance(encoder, nn.Sequential) and isinstance(body := encoder[-1], HuggingFaceImage):
        _write_image_model(trained, body, folder)
    else:
        raise UsageError(
            f"--to transformers: the encoder {trained.run.encoder} is no model of transformers; --to onnx and --to torch take it"
        )


def write_text_model(trained: Trained, tower: str, folder: Path) -> None:
    """Weights as safetensors, the configuration, and the tokenizer."""
    copy.deepcopy(getattr(trained.net, tower).model).cpu().save_pretrained(folder)
    assert trained.tokenizer is not None
    _fast_tokenizer(trained.tokenizer, trained.net.sizes["length"]).save_pretrained(folder)


def _fast_tokenizer(tokenizer: Tokenizer, length: int) -> Any:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    engine = tokenizers.Tokenizer.from_str(tokenizer.definition)
    special: dict[str, Any] = {f"{name}_token": engine.id_to_token(i) for name, i in tokenizer.special.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=engine, model_max_length=length, model_input_names=["input_ids", "attention_mask"], padding_side="right", **special
    )


@torch.no_grad()
def head_of(trained: Trained, tower: str) -> nn.Linear | None:
    """The layer that this run's vectors come from, before a tanh; None where they are the encoder's own. Another way is refused."""
    net, ids = trained.net, signature_of(trained).example.to(trained.device)
    plain, vectors = getattr(net, tower)(ids), trained.recipe.encode(net, ids, tower)
    if plain.shape == vectors.shape and torch.equal(plain, vectors):
        return None
    head = getattr(net, "head", None)
    if isinstance(head, nn.Sequential) and [type(layer) for layer in head] == [nn.Linear, nn.Tanh] and torch.equal(head(plain), vectors):
        return cast(nn.Linear, head[0])
    raise UsageError(
        f"{type(trained.recipe).__name__} makes its vectors in a way of its own after the encoder; --to onnx and --to torch take it"
    )


def _write_image_model(trained: Trained, body: HuggingFaceImage, folder: Path) -> None:
    signature, standard = signature_of(trained), trained.net.sizes.get("standardised", trained.net.sizes)
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
    write_words(trained, {"model": signature}, folder, load)
