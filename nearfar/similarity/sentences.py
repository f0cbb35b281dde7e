"""What counts as alike among texts: a sentence and itself, the columns of a row, a text and its hidden tokens, neighbours in a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from nearfar.core import Key, Raw, Rows, Similarity, Sizes, UsageError, Views
from nearfar.data.text.wordnet import synonyms
from nearfar.similarity.easy_edits import EasyEdits
from nearfar.similarity.token_views import CutFeatures, EraseSpan, EraseTokens, HideTokens, Special, TokenViews


@dataclass(frozen=True)
class Twice(Similarity):
    """The same sentence as both views, {"v0": (n, t), "v1": (n, t)}: what makes them differ is the encoder's dropout."""

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        return data.read(rows.ids)

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return {"v0": raw, "v1": raw}


def views_of_sentences(name: str, share: float, sizes: Sizes, width: int, wordnet: str = "") -> Similarity:
    """Two views of a sentence, by the name of what makes them differ besides the encoder's dropout."""
    special = Special.of(sizes)
    if name == "eda":
        if not wordnet:
            raise UsageError("--views eda needs WordNet: name the folder of its dictionary files with --wordnet")
        return EasyEdits(synonyms(wordnet), share)
    if name == "cut-features":
        return TokenViews(features=CutFeatures(width, share))
    ops = {"erase-tokens": EraseTokens, "erase-span": EraseSpan, "hide-tokens": HideTokens}
    return TokenViews((ops[name](special, share),)) if name in ops else Twice()


@dataclass(frozen=True)
class Columns(Similarity):
    """The texts of a row, {"v0": (n, t), "v1": (n, t), …}: pairs, or anchor, positive and negative; with "label" and "score" (-1
    and nan: unknown)."""

    number: int
    """How many columns."""
    needs: Literal["labels", "scores"] | None = None
    """What else each row must have."""

    def count(self, data: Any) -> int:
        if len(data.columns) < self.number:
            raise UsageError(
                f"this recipe learns from rows of {self.number} texts, {data.source} has {len(data.columns)}: give a table "
                "and name its columns, as in --columns anchor,positive,negative"
            )
        if self.needs and getattr(data, self.needs) is None:
            raise UsageError(f"this recipe learns from {self.needs}, and {data.source} has none: --columns …,{self.needs[:-1]}=NAME")
        return len(data)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        n = len(rows)
        return {
            "texts": data.read_columns(rows.ids, self.number),
            "label": torch.full((n,), -1) if data.labels is None else torch.as_tensor(data.labels[rows.ids]),
            "score": torch.full((n,), torch.nan) if data.scores is None else torch.as_tensor(data.scores[rows.ids]),
        }

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return {f"v{i}": ids for i, ids in enumerate(raw["texts"])} | {"label": raw["label"], "score": raw["score"]}


@dataclass(frozen=True)
class Masked(Similarity):
    """Some tokens are hidden: {"v0": (n, t) what the model sees, "places": (n, k) which were hidden, "words": (n, k) what stood there}.

    A `share` of a sentence's tokens, rounded, and at least one; k is that of the widest sentence, and "words" is -1 where there are
    fewer. Of the hidden tokens eight in ten become the mask, one becomes a random token, one stays as it is, so that the model cannot
    tell a token that it must predict from one that it need not. Special tokens are never hidden.
    """

    special: Special
    vocabulary: int
    share: float = 0.15

    @staticmethod
    def of(sizes: Sizes, share: float) -> Masked:
        special = Special.of(sizes)
        if special.mask is None:
            raise UsageError("this recipe hides tokens, and the tokenizer has no mask token: use another --tokenizer")
        return Masked(special, sizes["vocabulary"], share)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        return data.read(rows.ids)

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        slots, width = torch.as_tensor(rows.slots).to(raw.device), raw.shape[1]
        ordinary, k = self.special.ordinary(raw), max(1, round(self.share * width))
        count = (ordinary.sum(1, keepdim=True) * self.share).round().clamp(1, k)
        score = key("hide").uniform(slots, width).masked_fill(~ordinary, 2.0)  # drawn are below 1: the others come last
        lowest, places = score.topk(k, largest=False)
        chosen = (torch.arange(k, device=raw.device) < count) & (lowest < 2)
        words, how = raw.gather(1, places), key("how").uniform(slots, k)
        shown = words.masked_fill(how < 0.8, self.special.mask)
        shown = torch.where(how >= 0.9, key("other").integers(slots, self.vocabulary, k), shown)
        seen = raw.scatter(1, places, torch.where(chosen, shown, words))
        return {"v0": seen, "places": places, "words": words.masked_fill(~chosen, -1)}


@dataclass(frozen=True)
class Consecutive(Similarity):
    """Runs of `span` sentences in the order of the text: {"texts": (n * span, t), "passage": (n * span,)}.

    Rows of the same passage stand in one run and in one stretch of a document: nothing else is near by being next to it in the batch.
    """

    span: int

    def count(self, data: Any) -> int:
        if data.passages is None:
            raise UsageError(
                f"this recipe learns from sentences in their order, and {data.source} has none: give a .txt of whole documents"
            )
        if len(data) < self.span:
            raise UsageError(f"{data.source} has {len(data)} sentences to learn from, fewer than --span {self.span}")
        return len(data) // self.span

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        ids = (rows.ids[:, None] % self.count(data) * self.span + np.arange(self.span)).reshape(-1)
        return {"texts": data.read(ids), "document": torch.as_tensor(data.stretches[ids])}

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        run = torch.as_tensor(rows.slots).to(raw["document"].device).repeat_interleave(self.span)
        return {"texts": raw["texts"], "passage": (run << 32) + raw["document"]}
