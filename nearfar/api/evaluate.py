"""Evaluation of a run on its test split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation, Modality, ViewPair
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits
from nearfar.evaluate import Features, ResultTable, compare_features
from nearfar.reports.model_card import write_model_card
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views, load_model_splits

TRAINED_ENCODER = "trained encoder"
"""Name of the trained model among the measured representations."""
ALIGNMENT_SAMPLES = 512
"""Number of test samples for the alignment measurement."""


def evaluate_model(model: Model, data: Any = None, *, progress: ProgressCallback | None = None, **protocol: Any) -> ResultTable:
    """Evaluate baselines, the untrained encoder and the trained encoder on the test split.

    All are measured under one protocol. The probes are trained on the training split. Simple baselines are
    raw pixels or word counts, for example. Some modalities have their own evaluation (`Modality.evaluate`).

    Args:
        model: a trained model.
        data: other data to evaluate on. Default: the data and split of the run. The results are then written
            into its model card.
        progress: called with the number of encoded samples and the number of all samples.
        protocol: values that differ from the default: `k` and `temperature` of the neighbors, `per_class` and
            `draws` of the few labels, `C` of the probes.
    """
    table = measure_model(model, data, progress, **protocol).table
    if data is None and not protocol:
        write_model_card(model, table)
    return table


def measure_model(model: Model, data: Any = None, progress: ProgressCallback | None = None, **protocol: Any) -> Evaluation:
    """Return the evaluation with its features.

    `protocol` is passed to `compare_features` (k, temperature, per_class, draws, C).

    Raises:
        UsageError: if there is no test split, or if the modality does not accept `protocol`.
    """
    modality, rng_key = model.modality, RandomKey(model.config.seed)("evaluate")
    if protocol and modality.has_own_evaluation(model):
        raise UsageError(f"{', '.join(protocol)}: runs of {model.recipe.card.title} have their own evaluation protocol")
    if (own := modality.evaluate(model, data, progress)) is not None:
        return own
    splits = load_model_splits(model, data, progress)
    if splits.test is None:
        raise UsageError(f"{splits.train.source} has no test split and is too small to draw one: nothing to evaluate on")
    train, test = modality.select_train_samples(splits.train, rng_key), splits.test
    untrained = model.build_untrained()
    views = draw_test_views(model, test, min(ALIGNMENT_SAMPLES, len(test)))
    rows: dict[str, Features] = _compute_baselines(modality, train, splits, views)
    before = "encoder before training" if model.config.encoder.startswith("hf:") else "untrained encoder"
    given = {} if (began := model.build_from_init()) is None else {"encoder it began from": began}
    for name, who in {before: untrained, **given, TRAINED_ENCODER: model}.items():
        pair = None if views is None else modality.encode_views(who, views)
        features = [who.encode(part, progress=progress) for part in (train, test)]
        held = None if splits.validation is None else who.encode(splits.validation)
        # With a validation split the protocol is that of its benchmark: features as they are.
        rows[name] = Features(*features, views=pair, standardize=held is None, baseline=who is not model, validation=held)
    labelled, remark = (
        train.labels is not None and test.labels is not None and len(train.classes) > 1,
        modality.explain_skipped_probes(train),
    )
    labels = (train.labels, test.labels) if labelled and not remark else (None, None)
    if splits.validation is not None and labels[0] is not None:
        protocol["validation_y"] = splits.validation.labels
    table = compare_features(rows, *labels, rng_key=rng_key, checkpoint=f"step {model.step} of {model.config.steps}", **protocol)
    if labelled and remark:
        table.protocol["remark"] = remark
    as_tensor = {name: torch.as_tensor(rows[name].test) for name in rows}
    trained = torch.as_tensor(rows[TRAINED_ENCODER].train)
    return Evaluation(table, splits, train, trained, as_tensor[TRAINED_ENCODER], as_tensor[before], features=rows)


def _compute_baselines(modality: Modality, train: Any, splits: Splits, views: ViewPair | None) -> dict[str, Features]:
    found = modality.compute_baselines(train, splits.test, views)
    if splits.validation is None:
        return found
    held = modality.compute_baselines(train, splits.validation, None)
    return {name: replace(features, validation=held[name].test) for name, features in found.items()}
