"""Measurements of a diagnosis: a run's embeddings, views and samples.

Measurements that do not apply are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, Recipe, Rows, Similarity
from nearfar.data import Splits
from nearfar.evaluate.geometry import spread
from nearfar.evaluate.health_measures import (
    count_near_duplicates,
    effective_negative_share,
    in_batch_duplicate_rate,
    relative_distances,
    relative_effective_rank,
    same_label_rate,
    view_match_rate,
)
from nearfar.evaluate.isotropy import cosine_moments
from nearfar.similarity import ImageViews
from nearfar.similarity.jigsaw import Jigsaw
from nearfar.train.loader import to_device
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views
from nearfar.train.step import freeze_batch_norm_statistics

MAX_ROWS = 256
"""Number of training samples for embeddings and views. Match rates and shares of negatives depend on this
number."""
MIN_ROWS = 32
"""Fewest training samples of a diagnosis."""
UNIT_NORM_TOLERANCE = 1e-2
"""Tolerance of unit length. Vectors whose length is nearer to 1 count as unit vectors."""
MAX_QUERIES, MAX_CANDIDATES, CANDIDATES_PER_BLOCK = 512, 60_000, 2048
"""Limits of the search for duplicates: queries, candidates, and candidates in memory at a time."""


def measure_symptoms(model: Model, splits: Splits) -> dict[str, float]:
    """Measure all symptoms of a run that apply, by name.

    Only `same_label` needs labels.
    """
    rng_key, train = RandomKey(model.config.seed)("diagnose"), splits.train
    if explain_missing_symptoms(model, splits):
        return {}
    found = _of_samples(model, splits, rng_key)
    part = model.modality.draw_samples(train, MAX_ROWS, rng_key("sample"))
    if type(part) is type(train) and model.recipe.similarity(model.net).count(part) == len(part):
        part = part if model.recipe.uses_labels else part.drop_labels()
        found |= _at_the_loss(model, part, rng_key) | _of_views(model, part)
    vectors = model.encode(part)
    if type(part) is not type(train) or not model.recipe.rowwise:  # the loss sees other units than these samples
        found |= {"spread": spread(vectors), "rank_share": relative_effective_rank(vectors)}
    return found | {"mean_cosine": cosine_moments(vectors)[0]}


def explain_missing_symptoms(model: Model, splits: Splits) -> str:
    """Return the reason why a run cannot be examined.

    The result is empty if the run can be examined.
    """
    return f"{len(splits.train)} training samples are too few, {MIN_ROWS} are needed" if len(splits.train) < MIN_ROWS else ""


def uses_contrast(recipe: Recipe) -> bool:
    """Return True if a method pushes other samples away without labels."""
    return not recipe.uses_labels and not recipe.card.negative.lower().startswith(("none", "implicit"))


def _at_the_loss(model: Model, part: Any, rng_key: RandomKey) -> dict[str, float]:
    """Measure embeddings as the objective sees them: in training mode, with batch statistics."""
    tables = [z for z in _cut(model, part, rng_key).values() if z.ndim == 2 and z.is_floating_point() and min(z.shape) > 1]
    if not tables:
        return {}
    found = {"spread": spread(tables[0]), "rank_share": relative_effective_rank(tables[0])}
    partner, tau = next((z for z in tables[1:] if z.shape == tables[0].shape), None), _temperature(model)
    if partner is not None and tau is not None and uses_contrast(model.recipe):
        score = "dot" if model.recipe.card.score.startswith("dot") else "cosine"
        found["negatives_in_use"] = effective_negative_share(tables[0], partner, tau, score)
        length = tables[0].norm(dim=1)
        if (
            score == "dot" and float((length - 1).abs().max()) > UNIT_NORM_TOLERANCE
        ):  # training chooses the length, which sets how sharp the weights are
            found["length"] = float(length.mean())
    return found


def _temperature(model: Model) -> float | None:
    """Return the temperature.

    A learned temperature has its trained value.
    """
    if hasattr(model.net, "temperature"):
        return float(1 / model.net.temperature().detach())
    tau = getattr(model.recipe, "temperature", None)
    return tau if isinstance(tau, float) else None


@torch.no_grad()
def _cut(model: Model, part: Any, rng_key: RandomKey) -> dict[str, Tensor]:
    similarity, ids = model.recipe.similarity(model.net), np.arange(len(part))
    rows = Rows(ids, ids, ids)
    x = similarity.view(to_device(similarity.read(part, rows, rng_key("read")), model.device), rows, rng_key("views"))
    x["id"] = x["slot"] = torch.as_tensor(ids, device=model.device)
    model.net.train()
    try:
        with rng_key("dropout").fork_torch_rng(), freeze_batch_norm_statistics(model.net):
            return {
                name: z.float() if z.is_floating_point() else z for name, z in model.recipe.embed(model.net, x, rng_key("embed")).items()
            }
    finally:
        model.net.eval()


def _of_views(model: Model, part: Any) -> dict[str, float]:
    """Measure how often a view finds its partner, before and after training.

    If both views are equal, measure the distance that dropout causes.
    """
    views = draw_test_views(model, part, len(part))
    if views is None or views[0].shape != views[1].shape:
        return {}
    modality = model.modality
    if _alike(model.recipe.similarity(model.net)):
        before = model.build_from_init() or model.build_untrained()
        return {
            "match_before": view_match_rate(*modality.encode_views(before, views)),
            "match": view_match_rate(*modality.encode_views(model, views)),
        }
    if torch.equal(*views):
        first, second = modality.encode_views(model, views)
        return {"view_shift": float(relative_distances(first, second, first.mean(0)).diagonal().mean())}
    return {}


def _alike(similarity: Similarity) -> bool:
    """Return True if both views are whole images for the encoder.

    Jigsaw tiles are encoded one by one.
    """
    if not isinstance(similarity, ImageViews):
        return False
    return not any(isinstance(op, Jigsaw) for pipeline in similarity.pipelines for op in getattr(pipeline, "ops", (pipeline,)))


def _of_samples(model: Model, splits: Splits, rng_key: RandomKey) -> dict[str, float]:
    train, test, found = splits.train, splits.test, {}
    contrasting = uses_contrast(model.recipe)
    if contrasting and train.labels is not None and np.ndim(train.labels) == 1 and len(train.classes) > 1:
        found["same_label"] = same_label_rate(torch.as_tensor(train.labels))
    if not model.modality.reveals_copies:
        return found
    raw = model.modality.read_raw_features
    scanned = np.sort(rng_key("scanned").permutation(len(train))[:MAX_CANDIDATES])
    mean = raw(model, train, scanned[:CANDIDATES_PER_BLOCK]).mean(0)

    def chunks() -> Iterator[Tensor]:
        return (raw(model, train, scanned[i : i + CANDIDATES_PER_BLOCK]) for i in range(0, len(scanned), CANDIDATES_PER_BLOCK))

    if contrasting:
        own = (
            count_near_duplicates(
                raw(model, train, scanned[np.sort(rng_key("own").permutation(len(scanned))[:MAX_QUERIES])]), chunks(), mean
            )
            - 1
        )
        found["meeting_twin"] = in_batch_duplicate_rate(own, min(model.config.batch_size or 1, len(train)), len(scanned))
    if test is not None:
        asked = np.sort(rng_key("asked").permutation(len(test))[:MAX_QUERIES])
        found["leaked"] = float((count_near_duplicates(raw(model, test, asked), chunks(), mean) > 0).double().mean())
    return found
