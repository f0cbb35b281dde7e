"""Semantic textual similarity: Spearman's correlation of predicted and human scores on seven sets.

Each of STS12 to STS16 consists of several files. Papers turn them into one number in three ways, and the
results differ by points:

    all     Spearman of the pairs of all files together (SBERT, SimCSE and nearly all later papers)
    mean    the mean of the files' Spearman correlations (SentEval's own output)
    wmean   the same, weighted by the files' numbers of pairs (also SentEval's)

STS-B and SICK-R (test splits) are one file each, so all three agree. Nothing is trained: the score of a pair
is the cosine of its vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import NearfarError, RandomKey
from nearfar.data.text.senteval import STS_SETS, GradedPairs, read_sts
from nearfar.evaluate.correlation import spearman
from nearfar.evaluate.input_checks import check_features, require_finite

EncodeSentences = Callable[[list[str]], Tensor]
"""Encoder of sentences: maps a list of n texts to vectors (n, d)."""
PairScorer = Callable[[list[str], list[str]], Tensor]
"""Function that scores the similarity of two equally long lists of texts, row by row: (n,)."""
StsData = Mapping[str, Mapping[str, GradedPairs]]
StsProtocol = Literal["all", "mean", "wmean"]

STS_RESAMPLES_PER_BLOCK = 64


@dataclass(frozen=True)
class StsResult:
    """Gold and predicted scores, by set and by file."""

    data: StsData
    predicted: Mapping[str, Mapping[str, Float[Tensor, " n"]]]

    def compute_correlation(self, name: str, protocol: StsProtocol = "all") -> float:
        """Compute Spearman's correlation on one set."""
        if protocol == "all":
            return float(spearman(*self.concatenate_scores(name)))
        parts = self.compute_file_correlations(name)
        weights = [len(self.data[name][part]) if protocol == "wmean" else 1 for part in parts]
        return float(np.average(list(parts.values()), weights=weights))

    def compute_average(self, protocol: StsProtocol = "all") -> float:
        """Compute the mean over the sets, with equal weights."""
        return float(np.mean([self.compute_correlation(name, protocol) for name in self.data]))

    def compute_file_correlations(self, name: str) -> dict[str, float]:
        """Compute Spearman's correlation on each file of a set."""
        return {part: float(spearman(p, _get_gold_scores(self.data[name][part], p))) for part, p in self.predicted[name].items()}

    def concatenate_scores(self, name: str) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Return predicted and gold scores of all files of a set together."""
        predicted = torch.cat(list(self.predicted[name].values()))
        return predicted, torch.cat([_get_gold_scores(pairs, predicted) for pairs in self.data[name].values()])

    def as_dict(self) -> dict[str, Any]:
        """Return the results as a dict for JSON.

        It holds, for each set, the number of pairs, the correlation under each protocol and the correlations
        of the files, and then the averages.
        """
        protocols: tuple[StsProtocol, ...] = ("all", "mean", "wmean")
        sets = {
            name: {"pairs": sum(map(len, parts.values()))}
            | {p: self.compute_correlation(name, p) for p in protocols}
            | {"parts": self.compute_file_correlations(name)}
            for name, parts in self.data.items()
        }
        return {"sets": sets, "average": {p: self.compute_average(p) for p in protocols}}


def read_sts_sets(folder: str | Path) -> dict[str, dict[str, GradedPairs]]:
    """Read the seven sets from SentEval's folder."""
    return {name: read_sts(folder, name) for name in STS_SETS}


def measure_sts(data: StsData, score: PairScorer) -> StsResult:
    """Score all pairs of all sets in one call.

    `build_cosine_scorer(encode)` turns an encoder into a scorer.
    """
    parts = [(name, part, pairs) for name, files in data.items() for part, pairs in files.items()]
    first, second = ([text for *_, pairs in parts for text in side(pairs)] for side in (lambda p: p.first, lambda p: p.second))
    scores = score(first, second).double()
    if scores.shape != (len(first),):
        raise NearfarError(f"a score of {len(first)} pairs must be {len(first)} finite numbers, got the shape {tuple(scores.shape)}")
    require_finite(scores, "scores of pairs")
    cut = scores.split([len(pairs) for *_, pairs in parts])
    predicted: dict[str, dict[str, Tensor]] = {name: {} for name in data}
    for (name, part, _), values in zip(parts, cut, strict=True):
        predicted[name][part] = values
    return StsResult(data, predicted)


def build_cosine_scorer(encode: EncodeSentences) -> PairScorer:
    """Build a scorer from an encoder by cosine similarity.

    Each distinct text is encoded once. A zero vector has cosine 0 with every vector.
    """

    def score(first: list[str], second: list[str]) -> Float[Tensor, " n"]:
        """Compute the cosine of each pair of texts."""
        texts = list(dict.fromkeys(first + second))
        row = {text: i for i, text in enumerate(texts)}
        x = check_features(encode(texts), "embeddings")
        if len(x) != len(texts):
            raise NearfarError(f"the encoder gave {len(x)} vectors for {len(texts)} texts")
        x = F.normalize(x.double(), dim=1)
        a, b = (torch.tensor([row[text] for text in side], device=x.device) for side in (first, second))
        return (x[a] * x[b]).sum(1)

    return score


@dataclass(frozen=True)
class BootstrapDifference:
    """Difference of two scores with its bootstrap standard error and 95 % interval.

    For STS the score is Spearman's correlation with the protocol "all".
    """

    difference: float
    standard_error: float
    interval_low: float
    interval_high: float


def compare_sts(ours: StsResult, theirs: StsResult, rng_key: RandomKey, draws: int = 1000) -> dict[str, BootstrapDifference]:
    """Compare two results by a paired bootstrap of `ours - theirs`.

    The pairs of each set are drawn with replacement, the same pairs for both results.

    Returns:
        The difference for each set, and for "average".

    Reference: Efron & Tibshirani, An Introduction to the Bootstrap, 1993.
    """
    if ours.data.keys() != theirs.data.keys():
        raise NearfarError(f"compare_sts: measured on different sets: {', '.join(ours.data)} and {', '.join(theirs.data)}")
    if draws < 2:
        raise NearfarError(f"compare_sts: an error needs at least 2 draws, got {draws}")
    drawn = {}
    for name in ours.data:
        (a, gold), (b, other) = ours.concatenate_scores(name), theirs.concatenate_scores(name)
        if gold.shape != other.shape or not torch.equal(gold, other.to(gold.device)):
            raise NearfarError(f"compare_sts: {name} has different pairs in the two measurements")
        drawn[name] = _bootstrap(a, b.to(a.device), gold, rng_key("sts", name), draws)
    points = {name: ours.compute_correlation(name) - theirs.compute_correlation(name) for name in drawn}
    drawn["average"] = torch.stack(list(drawn.values())).mean(0)
    points["average"] = float(np.mean(list(points.values())))
    return {name: _difference(points[name], values) for name, values in drawn.items()}


def _bootstrap(a: Tensor, b: Tensor, gold: Tensor, rng_key: RandomKey, draws: int) -> Float[Tensor, " draws"]:
    n, found = len(gold), []
    for slots in torch.arange(draws, device=gold.device).split(STS_RESAMPLES_PER_BLOCK):
        chosen = rng_key.integers(slots, n, n)
        counts = torch.zeros(len(slots), n, dtype=gold.dtype, device=gold.device).scatter_add_(
            1, chosen, torch.ones_like(chosen, dtype=gold.dtype)
        )
        found.append(spearman(a, gold, counts) - spearman(b, gold, counts))
    return torch.cat(found)


def _difference(point: float, drawn: Tensor) -> BootstrapDifference:
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=drawn.dtype, device=drawn.device)).tolist()
    return BootstrapDifference(point, float(drawn.std()), low, high)


def _get_gold_scores(pairs: GradedPairs, like: Tensor) -> Float[Tensor, " n"]:
    return torch.from_numpy(pairs.score).to(like)


def render_sts(results: Mapping[str, StsResult], protocol: StsProtocol = "all") -> str:
    """Format results as a table of text.

    The table has one row per encoder, with the seven sets and their average, times 100.
    """
    names = list(next(iter(results.values())).data)
    rows = [["", *names, "average"]]
    for title, sts in results.items():
        rows.append(
            [
                title,
                *(
                    f"{100 * value:.2f}"
                    for value in (*(sts.compute_correlation(n, protocol) for n in names), sts.compute_average(protocol))
                ),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) if j else cell.ljust(width) for j, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([*lines, f"Spearman x 100, protocol {protocol!r}; STS-B and SICK-R: test split."])
