"""What a diagnosis looks at: a run's embeddings, views and samples, measured. Where a measurement does not apply it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.api.evaluate import views_of
from nearfar.core import Key, Recipe, Rows, Similarity
from nearfar.data import Splits
from nearfar.evaluate.geometry import spread
from nearfar.evaluate.health_measures import (
    match_rate,
    meeting_twin,
    negatives_in_use,
    rank_share,
    relative_distances,
    same_label,
    twin_counts,
)
from nearfar.evaluate.isotropy import cosine_moments
from nearfar.modalities import kind_of
from nearfar.similarity import Augment
from nearfar.similarity.jigsaw import Jigsaw
from nearfar.train.loader import to_device
from nearfar.train.model import Trained
from nearfar.train.step import frozen_statistics

ROWS = 256
"""Training samples that embeddings and views are measured on: match rates and shares of negatives depend on this number."""
FEWEST = 32
"""With fewer samples nothing is measured."""
UNIT = 1e-2
"""Vectors whose length is nearer to 1 are of unit length."""
QUERIES, SCANNED, CHUNK = 512, 60_000, 2048
"""Samples that twins are looked for of, among at most so many, so many at a time."""
THUMBNAIL = 16
"""Images are averaged down to this many pixels a side before they are compared."""


def measure_symptoms(trained: Trained, splits: Splits) -> dict[str, float]:
    """Everything that can be measured of this run, by name. Nothing here needs labels but `same_label`."""
    key, train = Key(trained.run.seed)("diagnose"), splits.train
    if nothing_measured(trained, splits):
        return {}
    part = train.subset(np.sort(key("sample").permutation(len(train))[:ROWS]))
    found = _of_samples(trained, splits, key)
    if trained.recipe.similarity(trained.net).count(part) == len(part):
        part = part if trained.recipe.uses_labels else part.unlabelled()
        found |= _at_the_loss(trained, part, key) | _of_views(trained, part)
    return found | {"mean_cosine": cosine_moments(trained.encode(part))[0]}


def nothing_measured(trained: Trained, splits: Splits) -> str:
    """Why a run cannot be examined; empty where it can."""
    if trained.recipe.card.modality not in RAW:
        return f"{trained.recipe.card.modality} is not examined yet, only {', '.join(RAW)}"
    return f"{len(splits.train)} training samples are too few, {FEWEST} are needed" if len(splits.train) < FEWEST else ""


def contrasts(recipe: Recipe) -> bool:
    """Whether a method pushes other samples away, without being told which of them are alike."""
    return not recipe.uses_labels and not recipe.card.negative.lower().startswith(("none", "implicit"))


def _at_the_loss(trained: Trained, part: Any, key: Key) -> dict[str, float]:
    """Embeddings as the objective sees them: in training mode, with the batch's own statistics."""
    tables = [z for z in _cut(trained, part, key).values() if z.ndim == 2 and z.is_floating_point() and min(z.shape) > 1]
    if not tables:
        return {}
    found = {"spread": spread(tables[0]), "rank_share": rank_share(tables[0])}
    partner, tau = next((z for z in tables[1:] if z.shape == tables[0].shape), None), _temperature(trained)
    if partner is not None and tau is not None and contrasts(trained.recipe):
        score = "dot" if trained.recipe.card.score.startswith("dot") else "cosine"
        found["negatives_in_use"] = negatives_in_use(tables[0], partner, tau, score)
        length = tables[0].norm(dim=1)
        if score == "dot" and float((length - 1).abs().max()) > UNIT:  # the training chooses it, and with it how sharp the weights are
            found["length"] = float(length.mean())
    return found


def _temperature(trained: Trained) -> float | None:
    """As the training left it where it is learned."""
    if hasattr(trained.net, "temperature"):
        return float(1 / trained.net.temperature().detach())
    tau = getattr(trained.recipe, "tau", None)
    return tau if isinstance(tau, float) else None


@torch.no_grad()
def _cut(trained: Trained, part: Any, key: Key) -> dict[str, Tensor]:
    similarity, ids = trained.recipe.similarity(trained.net), np.arange(len(part))
    rows = Rows(ids, ids, ids)
    x = similarity.view(to_device(similarity.read(part, rows, key("read")), trained.device), rows, key("views"))
    x["id"] = x["slot"] = torch.as_tensor(ids, device=trained.device)
    trained.net.train()
    try:
        with key("dropout").seeded(), frozen_statistics(trained.net):
            return {
                name: z.float() if z.is_floating_point() else z for name, z in trained.recipe.embed(trained.net, x, key("embed")).items()
            }
    finally:
        trained.net.eval()


def _of_views(trained: Trained, part: Any) -> dict[str, float]:
    """How hard the views make it to find a partner, before training and after; of equal views, how far dropout moves them."""
    views = views_of(trained, part, len(part))
    if views is None or views[0].shape != views[1].shape:
        return {}
    kind = kind_of(trained.recipe)
    if _alike(trained.recipe.similarity(trained.net)):
        before = trained.began() or trained.untrained()
        return {"match_before": match_rate(*kind.encode(before, views)), "match": match_rate(*kind.encode(trained, views))}
    if torch.equal(*views):
        first, second = kind.encode(trained, views)
        return {"view_shift": float(relative_distances(first, second, first.mean(0)).diagonal().mean())}
    return {}


def _alike(similarity: Similarity) -> bool:
    """Whether both views are images that the encoder takes whole: a jigsaw is encoded tile by tile."""
    if not isinstance(similarity, Augment):
        return False
    return not any(isinstance(op, Jigsaw) for pipeline in similarity.pipelines for op in getattr(pipeline, "ops", (pipeline,)))


def _of_samples(trained: Trained, splits: Splits, key: Key) -> dict[str, float]:
    train, test, found = splits.train, splits.test, {}
    contrasting = contrasts(trained.recipe)
    if contrasting and train.labels is not None and len(train.classes) > 1:
        found["same_label"] = same_label(torch.as_tensor(train.labels))
    raw = RAW[trained.recipe.card.modality]
    scanned = np.sort(key("scanned").permutation(len(train))[:SCANNED])
    mean = raw(trained, train, scanned[:CHUNK]).mean(0)

    def chunks() -> Iterator[Tensor]:
        return (raw(trained, train, scanned[i : i + CHUNK]) for i in range(0, len(scanned), CHUNK))

    if contrasting:
        own = twin_counts(raw(trained, train, scanned[np.sort(key("own").permutation(len(scanned))[:QUERIES])]), chunks(), mean) - 1
        found["meeting_twin"] = meeting_twin(own, min(trained.run.batch or 1, len(train)), len(scanned))
    if test is not None:
        asked = np.sort(key("asked").permutation(len(test))[:QUERIES])
        found["leaked"] = float((twin_counts(raw(trained, test, asked), chunks(), mean) > 0).double().mean())
    return found


def _pixels(trained: Trained, data: Any, ids: np.ndarray) -> Tensor:
    images = data.read(ids).float() / 255
    small = torch.nn.functional.adaptive_avg_pool2d(images, THUMBNAIL) if images.shape[-1] > THUMBNAIL else images
    return small.flatten(1)


def _token_counts(trained: Trained, data: Any, ids: np.ndarray) -> Tensor:
    """How often each token occurs in a text; padding does not count."""
    tokens, width = data.read(ids), trained.net.sizes["vocabulary"]
    counts = torch.zeros(len(tokens), width).scatter_add_(1, tokens, torch.ones(tokens.shape))
    counts[:, trained.net.sizes["special"]["pad"]] = 0
    return counts


RAW = {"image": _pixels, "image-text": _pixels, "text": _token_counts}
"""Samples as vectors in which copies and near copies are found; of other modalities nothing is measured yet."""
