"""Similarity of texts: dropout views, columns of a row, masked tokens, and consecutive sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Sizes, UsageError, Views
from nearfar.data.text.wordnet import read_synonyms
from nearfar.similarity.easy_data_augmentation import EasyDataAugmentation
from nearfar.similarity.token_views import EraseSpan, EraseTokens, FeatureCutoff, MaskTokens, SpecialTokens, TokenViews


@dataclass(frozen=True)
class DropoutViews(Similarity):
    """The same sentence as both views, {"v0": (n, t), "v1": (n, t)}.

    The views differ only by the dropout of the encoder.
    """

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.read(rows.ids)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return {"v0": raw, "v1": raw}


def build_sentence_views(view_name: str, changed_share: float, sizes: Sizes, embedding_dim: int, wordnet_folder: str = "") -> Similarity:
    """Build two views of a sentence by the name of the augmentation.

    The dropout of the encoder makes the views differ as well.

    Args:
        view_name: "eda", "cut-features", "erase-tokens", "erase-span", "hide-tokens". Other names add no
            augmentation.
        changed_share: share of the words, tokens or features to change.
        sizes: sizes of the dataset, with the special tokens.
        embedding_dim: dimension of the token vectors, for "cut-features".
        wordnet_folder: folder of WordNet's dictionary files, for "eda".

    Raises:
        UsageError: "eda" without a WordNet folder.
    """
    special = SpecialTokens.from_sizes(sizes)
    if view_name == "eda":
        if not wordnet_folder:
            raise UsageError("--views eda needs WordNet: name the folder of its dictionary files with --wordnet-folder")
        return EasyDataAugmentation(read_synonyms(wordnet_folder), changed_share)
    if view_name == "cut-features":
        return TokenViews(feature_cutoff=FeatureCutoff(embedding_dim, changed_share))
    ops = {"erase-tokens": EraseTokens, "erase-span": EraseSpan, "hide-tokens": MaskTokens}
    return TokenViews((ops[view_name](special, changed_share),)) if view_name in ops else DropoutViews()


@dataclass(frozen=True)
class TextColumns(Similarity):
    """Texts of a row, with label and score.

    The output is {"v0": (n, t), "v1": (n, t), …, "label": (n,), "score": (n,)}. The texts are pairs, or
    anchor, positive and negative. An unknown label is -1, an unknown score is nan.
    """

    num_columns: int
    """Number of columns."""
    required_field: Literal["labels", "scores"] | None = None
    """Field that each row must also have."""

    def count(self, data: Any) -> int:
        if len(data.columns) < self.num_columns:
            raise UsageError(
                f"this recipe learns from rows of {self.num_columns} texts, {data.source} has {len(data.columns)}: give a table "
                "and name its columns, as in --columns anchor,positive,negative"
            )
        if self.required_field and getattr(data, self.required_field) is None:
            raise UsageError(
                f"this recipe learns from {self.required_field}, and {data.source} has none: --columns …,{self.required_field[:-1]}=NAME"
            )
        return len(data)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        n = len(rows)
        return {
            "texts": data.read_columns(rows.ids, self.num_columns),
            "label": torch.full((n,), -1) if data.labels is None else torch.as_tensor(data.labels[rows.ids]),
            "score": torch.full((n,), torch.nan) if data.scores is None else torch.as_tensor(data.scores[rows.ids]),
        }

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return {f"v{i}": ids for i, ids in enumerate(raw["texts"])} | {"label": raw["label"], "score": raw["score"]}


@dataclass(frozen=True)
class MaskedTokens(Similarity):
    """Sentences with masked tokens.

    The views are {"v0": (n, t) input ids, "places": (n, k) masked positions, "words": (n, k) original ids}. A
    share `masked_share` of the tokens of a sentence is chosen, rounded, at least one. k is the number for a
    sentence of the full width, and "words" is -1 where a sentence has fewer. Of the chosen tokens, 80 %
    become the mask, 10 % become a random token and 10 % stay unchanged, so that the model cannot tell which
    tokens it must predict. Special tokens are never chosen.
    """

    special_tokens: SpecialTokens
    vocab_size: int
    masked_share: float = 0.15

    @staticmethod
    def from_sizes(sizes: Sizes, masked_share: float) -> MaskedTokens:
        """Build the similarity from the sizes of a text dataset.

        Raises:
            UsageError: the tokenizer has no mask token.
        """
        special = SpecialTokens.from_sizes(sizes)
        if special.mask_id is None:
            raise UsageError("this recipe masks tokens, and the tokenizer has no mask token: use another --tokenizer")
        return MaskedTokens(special, sizes["vocab_size"], masked_share)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.read(rows.ids)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        slots, width = torch.as_tensor(rows.slots).to(raw.device), raw.shape[1]
        ordinary, k = self.special_tokens.is_ordinary(raw), max(1, round(self.masked_share * width))
        count = (ordinary.sum(1, keepdim=True) * self.masked_share).round().clamp(1, k)
        # drawn scores are below 1, so special tokens come last
        score = rng_key("hide").uniform(slots, width).masked_fill(~ordinary, 2.0)
        lowest, places = score.topk(k, largest=False)
        chosen = (torch.arange(k, device=raw.device) < count) & (lowest < 2)
        words, how = raw.gather(1, places), rng_key("how").uniform(slots, k)
        shown = words.masked_fill(how < 0.8, self.special_tokens.mask_id)
        shown = torch.where(how >= 0.9, rng_key("other").integers(slots, self.vocab_size, k), shown)
        seen = raw.scatter(1, places, torch.where(chosen, shown, words))
        return {"v0": seen, "places": places, "words": words.masked_fill(~chosen, -1)}


@dataclass(frozen=True)
class ConsecutiveSentences(Similarity):
    """Runs of consecutive sentences.

    The output is {"texts": (n * s, t), "passage": (n * s,)}. s is `consecutive_sentences`. Rows with the same
    passage number are in the same run and the same section of a document, so rows are not treated as close
    only because they are adjacent in the batch.
    """

    consecutive_sentences: int

    def count(self, data: Any) -> int:
        if data.document_ids is None:
            raise UsageError(
                f"this recipe learns from sentences in their order, and {data.source} has none: give a .txt of whole documents"
            )
        if len(data) < self.consecutive_sentences:
            raise UsageError(
                f"{data.source} has {len(data)} sentences to learn from, fewer than --consecutive-sentences {self.consecutive_sentences}"
            )
        return len(data) // self.consecutive_sentences

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        ids = (rows.ids[:, None] % self.count(data) * self.consecutive_sentences + np.arange(self.consecutive_sentences)).reshape(-1)
        return {"texts": data.read(ids), "document": torch.as_tensor(data.segment_ids[ids])}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        run = torch.as_tensor(rows.slots).to(raw["document"].device).repeat_interleave(self.consecutive_sentences)
        return {"texts": raw["texts"], "passage": (run << 32) + raw["document"]}
