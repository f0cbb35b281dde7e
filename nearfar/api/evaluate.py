"""What a run is worth and what it is for: the evaluation table, the report."""

from __future__ import annotations

from typing import Any

import torch

from nearfar.core import RandomKey, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.evaluate import Features, ResultTable, compare_features
from nearfar.modalities import Evaluation, get_modality
from nearfar.reports.model_card import write_model_card
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views, load_model_splits

ALIGNMENT_SAMPLES = 512
"""How many test samples the alignment is measured on."""


def evaluate_model(model: Model, data: Any = None, *, progress: ProgressCallback | None = None, **protocol: Any) -> ResultTable:
    """Simple baselines (raw pixels, counted words), the untrained encoder and the trained one on the test split, under one protocol;
    or what the modality measures itself by (`Modality.evaluate`).

    Without `data` the run's own data and split are used, and the numbers go into its model card. The probes learn from the training split.
    `protocol`: k and temperature of the neighbors, per_class and draws of the few labels, C of the probes, if not the usual ones.
    """
    table = measure_model(model, data, progress, **protocol).table
    if data is None and not protocol:
        write_model_card(model, table)
    return table


def measure_model(model: Model, data: Any = None, progress: ProgressCallback | None = None, **protocol: Any) -> Evaluation:
    """The evaluation with its features; `protocol` as `compare_features` takes it (k, temperature, per_class, draws, C)."""
    modality, rng_key = get_modality(model.recipe), RandomKey(model.config.seed)("evaluate")
    if protocol and modality.has_own_evaluation(model):
        raise UsageError(f"{', '.join(protocol)}: runs of {model.recipe.card.title} are measured by a protocol of their own")
    if (own := modality.evaluate(model, data, progress)) is not None:
        return own
    splits = load_model_splits(model, data, progress)
    if splits.test is None:
        raise UsageError(f"{splits.train.source} has no test split and is too small to draw one: nothing to evaluate on")
    train, test = modality.select_train_samples(splits.train, rng_key), splits.test
    untrained = model.build_untrained()
    views = draw_test_views(model, test, min(ALIGNMENT_SAMPLES, len(test)))
    rows: dict[str, Features] = modality.compute_baselines(train, test, views)
    before = "encoder before training" if model.config.encoder.startswith("hf:") else "untrained encoder"
    given = {} if (began := model.build_from_init()) is None else {"encoder it began from": began}
    for name, who in {before: untrained, **given, "trained encoder": model}.items():
        pair = None if views is None else modality.encode_views(who, views)
        features = [who.encode(part, progress=progress) for part in (train, test)]
        rows[name] = Features(features[0], features[1], views=pair, baseline=who is not model)
    labelled, remark = (
        train.labels is not None and test.labels is not None and len(train.classes) > 1,
        modality.explain_skipped_probes(train),
    )
    labels = (train.labels, test.labels) if labelled and not remark else (None, None)
    table = compare_features(rows, *labels, rng_key=rng_key, checkpoint=f"step {model.step} of {model.config.steps}", **protocol)
    if labelled and remark:
        table.protocol["remark"] = remark
    as_tensor = {name: torch.as_tensor(rows[name].test) for name in rows}
    return Evaluation(table, splits, train, torch.as_tensor(rows["trained encoder"].train), as_tensor["trained encoder"], as_tensor[before])
