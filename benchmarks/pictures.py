"""What the benchmarks of pictures with text share: trained encoders against the floor that borrows words, and the verdict over seeds."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.core.modality import Evaluation
from nearfar.evaluate.cross_modal import build_neighbor_caption_baseline, hits_at
from nearfar.evaluate.retrieval import paired_bootstrap
from nearfar.modalities.image import read_raw_pixels
from nearfar.modalities.image_text import match_captions
from nearfar.train.model import Model


def bootstrapped(model: Model, found: Evaluation) -> dict[str, dict[str, float]]:
    """For each recall what training gains over borrowed words, and its error by paired bootstrap over the things that are shown."""
    train, test = found.splits.train, found.splits.test
    captions = test.get_unique_captions()
    right = match_captions(test, captions)
    pixels = {part: read_raw_pixels(part.images).flatten(1) for part in (test, train)}
    images, words = build_neighbor_caption_baseline(pixels[test], pixels[train], [train.get_captions(i) for i in range(len(train))])
    floor, vectors = words(captions), model.encode(captions)
    asked = {
        "to_text": ((found.test_features, vectors), (images, floor), right),
        "to_image": ((vectors, found.test_features), (floor, images), right.flip(1)),
    }
    measured, things = {}, _things(test, right)
    for way, (ours, theirs, truth) in asked.items():
        hits, floor_hits = hits_at(*ours, truth), hits_at(*theirs, truth)
        for k in hits:
            measured[f"{way}_{k}"] = gained(hits[k], floor_hits[k], things[way])
    return measured


def gained(ours: Tensor, theirs: Tensor, things: Tensor | None = None) -> dict[str, float]:
    """What one side hits more than the other on the same queries, and its bootstrap error; `things`: what each query is about."""
    gain = paired_bootstrap(ours.cpu(), theirs.cpu(), RandomKey(0), draws=2000, groups=things)
    return {"gain": gain.difference, "error": gain.standard_error}


def _things(test: Any, right: Tensor) -> dict[str, Tensor]:
    """The thing that each image shows; the thing that each caption was first said of."""
    shown = torch.from_numpy(test.thing[test.images.ids])
    first = np.unique(right[:, 1].numpy(), return_index=True)[1]
    return {"to_text": shown, "to_image": shown[right[first, 0]]}


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over seeds, for each recall: the gain of training over its floor. Its error is the larger of the paired standard error over
    seeds and of the mean bootstrap error; it is above if the gain is more than twice that."""
    found = []
    for metric in rows[0]["bootstrap"]:
        gains = [r["bootstrap"][metric]["gain"] for r in rows]
        seeds = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        error = max(seeds, mean(r["bootstrap"][metric]["error"] for r in rows))
        found.append({"metric": metric, "gain": mean(gains), "error": error, "seeds": len(gains), "above": mean(gains) > 2 * error})
    return found
