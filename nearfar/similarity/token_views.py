"""Views of a sentence by what happens to its tokens: erased one by one, erased in a run, hidden behind the mask, or all of them
without some of their features.

Every operation is `op(ids, slots, key)` on a whole batch, on its device; special tokens stay. An erased token becomes padding:
encoders neither attend to it nor count it, as if its vectors were zero.

Reference: Shen, Zheng, Shen, Qu & Chen, "A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language Understanding and
Generation", arXiv:2009.13818 (cutoff).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nearfar.core import Key, Raw, Rows, Similarity, Sizes, UsageError, Views

TokenOp = Callable[[Tensor, Tensor, Key], Tensor]
"""`op(ids, slots, key)`: the ids after it."""


@dataclass(frozen=True)
class Special:
    """The ids of special tokens."""

    all: tuple[int, ...]
    pad: int
    mask: int | None = None

    @staticmethod
    def of(sizes: Sizes) -> Special:
        special = sizes["special"]
        return Special(tuple(sorted(special.values())), special["pad"], special.get("mask"))

    def ordinary(self, ids: Int64[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
        """Where there is a token of the text itself. (One by one: a list that is sent to a GPU makes the host wait.)"""
        return ~functools.reduce(torch.logical_or, [ids == special for special in self.all])


@dataclass(frozen=True)
class EraseTokens:
    """Token cutoff: each token is erased with probability `share`."""

    special: Special
    share: float = 0.1

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], key: Key) -> Int64[Tensor, "n t"]:
        chosen = key("erase").uniform(slots, ids.shape[1]) < self.share
        return ids.masked_fill(chosen & self.special.ordinary(ids), self.special.pad)


@dataclass(frozen=True)
class EraseSpan:
    """Span cutoff: one run of tokens is erased, `share` of the sentence long (rounded), anywhere in it."""

    special: Special
    share: float = 0.1

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], key: Key) -> Int64[Tensor, "n t"]:
        ordinary = self.special.ordinary(ids)
        count = ordinary.sum(1, keepdim=True)
        length = (count * self.share).round()
        start = (key("span").uniform(slots, 1) * (count - length + 1)).floor()
        place = ordinary.cumsum(1) - 1
        return ids.masked_fill(ordinary & (place >= start) & (place < start + length), self.special.pad)


@dataclass(frozen=True)
class HideTokens:
    """Word masking: each token is replaced by the mask with probability `share`."""

    special: Special
    share: float = 0.1

    def __post_init__(self):
        if self.special.mask is None:
            raise UsageError("tokens cannot be hidden: the tokenizer has no mask token; use another --tokenizer")

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], key: Key) -> Int64[Tensor, "n t"]:
        chosen = key("hide").uniform(slots, ids.shape[1]) < self.share
        assert self.special.mask is not None
        return ids.masked_fill(chosen & self.special.ordinary(ids), self.special.mask)


@dataclass(frozen=True)
class CutFeatures:
    """Feature cutoff: which columns of the token vectors remain, the same for all tokens of a sentence; each is lost with
    probability `share`."""

    width: int
    share: float = 0.1

    def kept(self, slots: Int64[Tensor, " n"], key: Key) -> Float[Tensor, "n e"]:
        return (key("features").uniform(slots, self.width) >= self.share).float()


@dataclass(frozen=True)
class TokenViews(Similarity):
    """Two views of each sentence, each with operations drawn for it: {"v0": (n, t), "v1": (n, t)}, and with feature cutoff
    {"kept0": (n, e), "kept1": (n, e)}."""

    ops: tuple[TokenOp, ...] = ()
    features: CutFeatures | None = None

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        return data.read(rows.ids)

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        slots = torch.as_tensor(rows.slots).to(raw.device)
        views: Views = {}
        for v in (0, 1):
            ids = raw
            for i, op in enumerate(self.ops):
                ids = op(ids, slots, key("tokens", v, i))
            views[f"v{v}"] = ids
            if self.features is not None:
                views[f"kept{v}"] = self.features.kept(slots, key("tokens", v))
        return views
