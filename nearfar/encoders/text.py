"""Text encoders: modules that map token ids to one vector for each text.

Token ids are padded on the right.

    bert-tiny … bert-base    a transformer encoder built from its configuration, with random weights
    hf:NAME-OR-FOLDER        any text model of transformers, or the text tower of a CLIP, with its weights
    gru                      a recurrent network, the state after the last token
    bag                      the mean of the token vectors, without their order

Rows are independent, and padding does not count: the vector of a text does not depend on the other texts in
the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from nearfar.core import Sizes, UsageError
from nearfar.encoders.family import Architecture, EncoderBuilder, EncoderFamily
from nearfar.encoders.pretrained import import_transformers, is_dual_encoder, load_transformers_model, read_temperature

Pooling = Literal["cls", "mean", "first-last"]
"""Pooling of a transformer's token vectors: the first token's vector, the mean, or the mean of the first
and last layers' means."""

BERT_SHAPES = {"bert-tiny": (2, 128), "bert-mini": (4, 256), "bert-small": (4, 512), "bert-medium": (8, 512), "bert-base": (12, 768)}
"""Layers and width. A head is 64 wide, the inner layer four times the width (Turc et al. 2019,
arXiv:1908.08962)."""


class TextEncoder(nn.Module):
    """Base class of text encoders. `dim` is the width of the output."""

    dim: int

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.pad_id = int(sizes["special"]["pad"])
        self.pooling: Pooling = "mean"

    def compute_token_mask(self, ids: Int64[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
        """Return True for each token that is not padding."""
        return ids != self.pad_id

    @property
    @abstractmethod
    def token_embeddings(self) -> Float[Tensor, "w e"]:
        """Return the embedding vectors of all tokens in the vocabulary."""

    def embed_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n t e"]:
        """Look up the embedding vectors of tokens.

        `feature_mask` multiplies the vectors by column.
        """
        vectors = torch.nn.functional.embedding(ids, self.token_embeddings, self.pad_id)
        return vectors if feature_mask is None else vectors * feature_mask[:, None]

    @abstractmethod
    def encode_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n t d"]:
        """Compute a vector for each token.

        The vectors of padding are meaningless. `feature_mask` multiplies the embedding vectors by column.
        """

    @abstractmethod
    def forward(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n d"]: ...

    def configure(self, pooling: Pooling, dropout: float) -> TextEncoder:
        """Set the pooling and the dropout rate of all layers.

        The pooling has an effect on transformers only. Returns the encoder itself.
        """
        self.pooling = pooling
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
            elif isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = dropout  # type: ignore[assignment]
        return self


class HuggingFaceText(TextEncoder):
    """Text model of transformers, without its own pooling layer."""

    def __init__(self, model: Any, sizes: Sizes):
        super().__init__(sizes)
        self.model, self.max_length = model, get_max_length(model)
        self.dim = int(model.config.hidden_size)

    @property
    def token_embeddings(self) -> Float[Tensor, "w e"]:
        return self.model.get_input_embeddings().weight

    def _outputs(self, ids: Tensor, feature_mask: Tensor | None, hidden: bool = False) -> Any:
        # A row of padding only would make attention divide zero by zero, so its first token always counts.
        mask = self.compute_token_mask(ids)
        mask = torch.cat([torch.ones_like(mask[:, :1]), mask[:, 1:]], 1)
        enter = {"input_ids": ids} if feature_mask is None else {"inputs_embeds": self.embed_tokens(ids, feature_mask)}
        return self.model(**enter, attention_mask=mask.long(), output_hidden_states=hidden)

    def encode_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n u d"]:
        return self._outputs(
            ids[:, : self.max_length], feature_mask
        ).last_hidden_state  # widths are rounded up, and only padding is cut off

    def forward(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n d"]:
        ids = ids[:, : self.max_length]
        if self.pooling == "cls":
            return self.encode_tokens(ids, feature_mask)[:, 0]
        if self.pooling == "mean":
            return pool_mean(self.encode_tokens(ids, feature_mask), self.compute_token_mask(ids))
        hidden = self._outputs(ids, feature_mask, hidden=True).hidden_states
        return pool_mean((hidden[1] + hidden[-1]) / 2, self.compute_token_mask(ids))


class CLIPTextEncoder(TextEncoder):
    """Text tower of CLIP with its projection.

    A text is represented by the state of its first end token. `configure` does not change this pooling.
    Tokens attend only to earlier tokens, so that tokens after the end have no effect. No mask is needed.
    """

    def __init__(self, model: Any, name: str, sizes: Sizes):
        super().__init__(sizes)
        self.shared_space, self.temperature = name, read_temperature(model)
        self.model, self.projection = model.text_model, model.text_projection
        self.dim, self.max_length = self.projection.out_features, int(self.model.config.max_position_embeddings)

    @property
    def token_embeddings(self) -> Float[Tensor, "w e"]:
        return self.model.get_input_embeddings().weight

    def _outputs(self, ids: Tensor, feature_mask: Tensor | None) -> Any:
        if feature_mask is not None:
            raise UsageError(f"--encoder hf:{self.shared_space} cannot change token vectors: these views need another encoder")
        return self.model(input_ids=ids[:, : self.max_length])  # only padding is cut off

    def encode_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n u d"]:
        return self._outputs(ids, feature_mask).last_hidden_state

    def forward(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n d"]:
        return self.projection(self._outputs(ids, feature_mask).pooler_output)


class GRUEncoder(TextEncoder):
    """Gated recurrent unit over token vectors.

    A text is represented by the state after its last token.
    """

    def __init__(self, sizes: Sizes, embedding_dim: int = 128, dim: int = 256):
        super().__init__(sizes)
        self.embedding = nn.Embedding(sizes["vocab_size"], embedding_dim, padding_idx=self.pad_id)
        self.dropout = nn.Dropout(0.1)
        self.gru = nn.GRU(embedding_dim, dim, batch_first=True)
        self.dim = dim

    @property
    def token_embeddings(self) -> Float[Tensor, "w e"]:
        return self.embedding.weight

    def encode_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n t d"]:
        return self.gru(self.dropout(self.embed_tokens(ids, feature_mask)))[0]

    def forward(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n d"]:
        place = torch.arange(ids.shape[1], device=ids.device)
        states, last = self.encode_tokens(ids, feature_mask), (self.compute_token_mask(ids) * place).amax(1)
        return states.gather(1, last[:, None, None].expand(-1, -1, self.dim))[:, 0]


class BagOfTokens(TextEncoder):
    """Mean of the token vectors. The order of the tokens has no effect."""

    def __init__(self, sizes: Sizes, dim: int = 256):
        super().__init__(sizes)
        self.embedding = nn.Embedding(sizes["vocab_size"], dim, padding_idx=self.pad_id)
        self.dropout = nn.Dropout(0.1)
        self.dim = dim

    @property
    def token_embeddings(self) -> Float[Tensor, "w e"]:
        return self.embedding.weight

    def encode_tokens(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n t d"]:
        return self.dropout(self.embed_tokens(ids, feature_mask))

    def forward(self, ids: Int64[Tensor, "n t"], feature_mask: Float[Tensor, "n e"] | None = None) -> Float[Tensor, "n d"]:
        return pool_mean(self.encode_tokens(ids, feature_mask), self.compute_token_mask(ids))


def pool_mean(states: Float[Tensor, "n t d"], mask: Bool[Tensor, "n t"]) -> Float[Tensor, "n d"]:
    """Return the mean of the tokens where `mask` is True.

    The mean is zero for a text without tokens.
    """
    weight = mask.to(states.dtype)[:, :, None]
    return (states * weight).sum(1) / weight.sum(1).clamp_min(1)


def get_max_length(model: Any) -> int | None:
    """Return the maximum number of tokens that a model takes. None means no maximum.

    The positions of RoBERTa begin after the id of its padding token.
    """
    places = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    first = getattr(table, "padding_idx", None)
    return places if places is None or first is None else places - first - 1


def _bert(layers: int, width: int, sizes: Sizes) -> HuggingFaceText:
    transformers = import_transformers("a BERT encoder")
    config = transformers.BertConfig(
        vocab_size=sizes["vocab_size"], hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
        intermediate_size=4 * width, max_position_embeddings=max(512, sizes["max_length"]), pad_token_id=sizes["special"]["pad"],
    )  # fmt: skip
    return HuggingFaceText(transformers.BertModel(config, add_pooling_layer=False), sizes)


def load_text_encoder(name: str, sizes: Sizes, architecture: Architecture | None = None) -> TextEncoder:
    """Load a text model of transformers, or the text tower of a CLIP.

    Args:
        name: local folder, or name in the local cache.
        sizes: sizes of the data. "max_length" and "vocab_size" must fit the model.
        architecture: architecture to build with random weights, without reading files.

    Raises:
        UsageError: if the model takes fewer tokens or has a smaller vocabulary than the data.
    """
    model = load_transformers_model(name, architecture)
    config = model.config.get_text_config()
    reach = config.max_position_embeddings if is_dual_encoder(model) else get_max_length(model)
    if reach is not None and sizes["max_length"] > reach:
        raise UsageError(f"--encoder hf:{name} reads at most {reach} tokens: use --max-length {reach} or less")
    if sizes["vocab_size"] > config.vocab_size:
        raise UsageError(f"--encoder hf:{name} has {config.vocab_size} tokens, the tokenizer has {sizes['vocab_size']}: use its own")
    if is_dual_encoder(model):
        return CLIPTextEncoder(model, name, sizes)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return HuggingFaceText(model, sizes)


TEXT_ENCODERS: dict[str, EncoderBuilder] = {
    **{name: partial(_bert, *shape) for name, shape in BERT_SHAPES.items()},
    "gru": GRUEncoder,
    "bag": BagOfTokens,
}
TEXT_FAMILY = EncoderFamily(
    modality_name="texts",
    size_field="vocab_size",
    builders=TEXT_ENCODERS,
    choose_default=lambda sizes: "bert-tiny",
    build_pretrained=load_text_encoder,
)
