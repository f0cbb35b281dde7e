"""Views of a sentence by operations on its tokens.

Single tokens or a span are erased, tokens are masked, or all tokens lose some features. Every operation is
`op(ids, slots, rng_key)` on a whole batch, on its device. Special tokens are unchanged. An erased token
becomes padding. Encoders neither attend to it nor count it, as if its vectors were zero.

Reference: Shen, Zheng, Shen, Qu & Chen, "A Simple but Tough-to-Beat Data Augmentation Approach for Natural
Language Understanding and Generation", arXiv:2009.13818 (cutoff).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Sizes, UsageError, Views

TokenOp = Callable[[Tensor, Tensor, RandomKey], Tensor]
"""Token operation: `op(ids, slots, rng_key)` returns the changed ids."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of special tokens."""

    all_ids: tuple[int, ...]
    pad_id: int
    mask_id: int | None = None

    @staticmethod
    def from_sizes(sizes: Sizes) -> SpecialTokens:
        """Read the ids from the sizes of a text dataset."""
        special = sizes["special"]
        return SpecialTokens(tuple(sorted(special.values())), special["pad"], special.get("mask"))

    def is_ordinary(self, ids: Int64[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
        """Return True at tokens of the text itself.

        The ids are compared one by one, because sending a list to a GPU would make the host wait.
        """
        return ~functools.reduce(torch.logical_or, [ids == special for special in self.all_ids])


@dataclass(frozen=True)
class EraseTokens:
    """Token cutoff: each token is erased with probability `prob`."""

    special_tokens: SpecialTokens
    prob: float = 0.1

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], rng_key: RandomKey) -> Int64[Tensor, "n t"]:
        chosen = rng_key("erase").uniform(slots, ids.shape[1]) < self.prob
        return ids.masked_fill(chosen & self.special_tokens.is_ordinary(ids), self.special_tokens.pad_id)


@dataclass(frozen=True)
class EraseSpan:
    """Span cutoff: one random run of tokens is erased.

    The run covers `share` of the sentence, rounded to whole tokens.
    """

    special_tokens: SpecialTokens
    share: float = 0.1

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], rng_key: RandomKey) -> Int64[Tensor, "n t"]:
        ordinary = self.special_tokens.is_ordinary(ids)
        count = ordinary.sum(1, keepdim=True)
        length = (count * self.share).round()
        start = (rng_key("span").uniform(slots, 1) * (count - length + 1)).floor()
        place = ordinary.cumsum(1) - 1
        return ids.masked_fill(ordinary & (place >= start) & (place < start + length), self.special_tokens.pad_id)


@dataclass(frozen=True)
class MaskTokens:
    """Word masking.

    Each token is replaced by the mask token with probability `prob`.
    """

    special_tokens: SpecialTokens
    prob: float = 0.1

    def __post_init__(self):
        if self.special_tokens.mask_id is None:
            raise UsageError("tokens cannot be masked: the tokenizer has no mask token; use another --tokenizer")

    def __call__(self, ids: Int64[Tensor, "n t"], slots: Int64[Tensor, " n"], rng_key: RandomKey) -> Int64[Tensor, "n t"]:
        chosen = rng_key("hide").uniform(slots, ids.shape[1]) < self.prob
        assert self.special_tokens.mask_id is not None
        return ids.masked_fill(chosen & self.special_tokens.is_ordinary(ids), self.special_tokens.mask_id)


@dataclass(frozen=True)
class FeatureCutoff:
    """Feature cutoff.

    Each feature of the token vectors is dropped with probability `prob`. All tokens of a sentence lose the
    same features.
    """

    embedding_dim: int
    prob: float = 0.1

    def draw_kept_features(self, slots: Int64[Tensor, " n"], rng_key: RandomKey) -> Float[Tensor, "n e"]:
        """Draw a mask `(n, e)` of kept features (1) and dropped features (0)."""
        return (rng_key("features").uniform(slots, self.embedding_dim) >= self.prob).float()


@dataclass(frozen=True)
class TokenViews(Similarity):
    """Two views of each sentence, with operations drawn for each view.

    The views are {"v0": (n, t), "v1": (n, t)}, with feature cutoff also {"kept0": (n, e), "kept1": (n, e)}.
    """

    ops: tuple[TokenOp, ...] = ()
    feature_cutoff: FeatureCutoff | None = None

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return data.read(rows.ids)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        slots = torch.as_tensor(rows.slots).to(raw.device)
        views: Views = {}
        for v in (0, 1):
            ids = raw
            for i, op in enumerate(self.ops):
                ids = op(ids, slots, rng_key("tokens", v, i))
            views[f"v{v}"] = ids
            if self.feature_cutoff is not None:
                views[f"kept{v}"] = self.feature_cutoff.draw_kept_features(slots, rng_key("tokens", v))
        return views
