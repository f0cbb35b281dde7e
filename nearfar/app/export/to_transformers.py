"""A folder that AutoModel loads: encoders that are models of transformers, with their tokenizer."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from nearfar.app.export.encoder import signature_of, write_readme, write_words
from nearfar.core import UsageError
from nearfar.data import Tokenizer
from nearfar.encoders import HuggingFaceImage
from nearfar.encoders.text import Transformer
from nearfar.train.trained import Trained

POOLING = {
    "cls": "model(**batch).last_hidden_state[:, 0]",
    "mean": "(states * mask).sum(1) / mask.sum(1)  # states = model(**batch).last_hidden_state; mask = batch.attention_mask[..., None]",
    "first-last": "the mean over tokens, as attention_mask has them, of (hidden[1] + hidden[-1]) / 2; "
    "hidden = model(**batch, output_hidden_states=True).hidden_states",
}


def write(trained: Trained, folder: Path) -> None:
    encoder = trained.net.encoder
    if isinstance(encoder, Transformer):
        if head_of(trained) is not None:
            raise UsageError(
                "--to transformers: this run's vectors come from a layer after the encoder, which AutoModel has no place for: "
                "--to sentence-transformers keeps it"
            )
        write_text_model(trained, folder)
        write_readme(trained, folder, f"`AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load it. Vectors are\n\n"
                                      f"    {POOLING[encoder.pool]}")  # fmt: skip
    elif isinstance(encoder, nn.Sequential) and isinstance(body := encoder[-1], HuggingFaceImage):
        _write_image_model(trained, body, folder)
    else:
        raise UsageError(
            f"--to transformers: the encoder {trained.run.encoder} is no model of transformers; --to onnx and --to torch take it"
        )


def write_text_model(trained: Trained, folder: Path) -> None:
    """Weights as safetensors, the configuration, and the tokenizer."""
    copy.deepcopy(trained.net.encoder.model).cpu().save_pretrained(folder)
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
def head_of(trained: Trained) -> nn.Linear | None:
    """The layer that this run's vectors come from, before a tanh; None where they are the encoder's own. Another way is refused."""
    net, ids = trained.net, signature_of(trained).example.to(trained.device)
    plain, vectors = net.encoder(ids), trained.recipe.encode(net, ids, "encoder")
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
