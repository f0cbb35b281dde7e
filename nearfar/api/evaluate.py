"""What a run is worth and what it is for: the evaluation table, the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nearfar
from nearfar import recipes
from nearfar.core import Key, Plan, Rows, Run, UsageError
from nearfar.data import Splits
from nearfar.evaluate import Features, Table, compare, project, spectrum
from nearfar.modalities import Evaluation, Pair, kind_of
from nearfar.reports.model_card import repeating, write_card
from nearfar.reports.report import ReportContent, find_neighbours, write_report
from nearfar.train.model import Trained
from nearfar.train.run_folder import RunFolder, training_seconds

Progress = Callable[[int, int], None]
VIEWED = 512
"""How many test samples the alignment is measured on."""
PAIRS = 24
"""How many positive pairs a report shows."""


def evaluate(trained: Trained, data: Any = None, *, progress: Progress | None = None, **protocol: Any) -> Table:
    """Simple baselines (raw pixels, counted words), the untrained encoder and the trained one on the test split, under one protocol;
    or what the modality measures itself by (`Kind.measure`).

    Without `data` the run's own data and split are used, and the numbers go into its model card. The probes learn from the training split.
    `protocol`: k and tau of the neighbours, per_class and draws of the few labels, C of the probes, if not the usual ones.
    """
    table = measure(trained, data, progress, **protocol).table
    if data is None and not protocol:
        write_card(trained, table)
    return table


evaluate_run = evaluate
"""Its name in `nearfar`, where `evaluate` is the room of the measures."""


def measure(trained: Trained, data: Any = None, progress: Progress | None = None, **protocol: Any) -> Evaluation:
    """The evaluation with its features; `protocol` as `compare` takes it (k, tau, per_class, draws, C)."""
    kind, key = kind_of(trained.recipe), Key(trained.run.seed)("evaluate")
    if protocol and kind.measures_itself(trained):
        raise UsageError(f"{', '.join(protocol)}: runs of {trained.recipe.card.title} are measured by a protocol of their own")
    if (own := kind.measure(trained, data, progress)) is not None:
        return own
    splits = splits_of(trained, data, progress)
    if splits.test is None:
        raise UsageError(f"{splits.train.source} has no test split and is too small to draw one: nothing to evaluate on")
    train, test = kind.chosen(splits.train, key), splits.test
    untrained = trained.untrained()
    views = views_of(trained, test, min(VIEWED, len(test)))
    rows: dict[str, Features] = kind.baselines(train, test, views)
    before = "encoder before training" if trained.run.encoder.startswith("hf:") else "untrained encoder"
    given = {} if (began := trained.began()) is None else {"encoder it began from": began}
    for name, who in {before: untrained, **given, "trained encoder": trained}.items():
        pair = None if views is None else kind.encode(who, views)
        features = [who.encode(part, progress=progress) for part in (train, test)]
        rows[name] = Features(features[0], features[1], views=pair, baseline=who is not trained)
    labelled, remark = train.labels is not None and test.labels is not None and len(train.classes) > 1, kind.unprobed(train)
    labels = (train.labels, test.labels) if labelled and not remark else (None, None)
    table = compare(rows, *labels, key=key, checkpoint=f"step {trained.step} of {trained.run.steps}", **protocol)
    if labelled and remark:
        table.protocol["remark"] = remark
    as_tensor = {name: torch.as_tensor(rows[name].test) for name in rows}
    return Evaluation(table, splits, train, torch.as_tensor(rows["trained encoder"].train), as_tensor["trained encoder"], as_tensor[before])


def splits_of(trained: Trained, data: Any = None, progress: Progress | None = None) -> Splits:
    """The run's own data, divided as in training; or other data, brought to the run's size.

    Data of another name may be the run's own too, with labels now say: a split drawn anew would depend on the labels, and test on
    what was trained on.
    """
    run = trained.run
    source = own_data(run, trained.folder) if data is None else data
    if isinstance(source, (str, os.PathLike)) and os.path.abspath(os.path.expanduser(source)) == os.path.abspath(run.data):
        splits = trained.inputs.open(source, run, trained.test_ids, progress)
        if trained.fingerprint and splits.train.fingerprint != trained.fingerprint:
            since = f"{run.data} has changed since {_called(trained.folder)} was trained"
            raise UsageError(f"{since}: what is test now may have been trained on")
        return splits
    splits = trained.inputs.open(source, run, None, progress)
    if trained.test_ids is None or splits.test_ids is None or splits.test_ids == trained.test_ids:
        return splits
    if len(splits.train) + len(splits.test_ids) != trained.net.sizes["n"] + len(trained.test_ids):
        return splits
    as_trained = trained.inputs.open(source, run, trained.test_ids, progress)
    return as_trained if as_trained.train.fingerprint == trained.fingerprint else splits


def own_data(run: Run, folder: RunFolder | None) -> str:
    """What the run was trained on, if it can be opened again."""
    if not run.data:
        raise UsageError(f"{_called(folder)} was trained on an array: hand the data in again (data=…, or --data)")
    return run.data


def _called(folder: RunFolder | None) -> str:
    return str(folder.path) if folder else "this run"


def views_of(trained: Trained, data: Any, count: int) -> Pair | None:
    """Two views of samples from all over the data, which may be sorted by class, drawn as in training but with random numbers of
    their own; None if the recipe has no two."""
    key = Key(trained.run.seed)("evaluate", "views")
    try:
        things = trained.recipe.similarity(trained.net).count(data)
    except UsageError:  # these data lack what is learned from, labels say; views need none
        things = len(data)
    ids = np.sort(key("rows").permutation(things)[:count])
    return _two_views(trained, data, Rows(ids, ids, ids), key)


def pairs_of(trained: Trained, data: Any) -> Pair | None:
    """The first positive pairs of the training's first step, as the model saw them: the same rows, keys and views."""
    key = Key(trained.run.seed)
    count = trained.recipe.similarity(trained.net).count(data)
    rows = Plan(count, trained.run.batch or 1, key).rows(0)[:PAIRS]
    return _two_views(trained, data, rows, key("view"))


def _two_views(trained: Trained, data: Any, rows: Rows, key: Key) -> Pair | None:
    similarity = trained.recipe.similarity(trained.net)
    views = similarity.view(similarity.read(data, rows, Key(trained.run.seed)("read")), rows, key)
    return (views["v0"], views["v1"]) if "v1" in views else None


def report(trained: Trained, evaluation: Evaluation | None = None, *, progress: Progress | None = None) -> Path:
    """Write RUN/report.html: the run to look at."""

    if trained.folder is None:
        raise UsageError("this run has no folder to write a report into: train with out=RUN")
    evaluation = evaluation or measure(trained, progress=progress)
    train, test = evaluation.splits.train, evaluation.splits.test if evaluation.asked is None else evaluation.asked
    assert test is not None
    key, kind = Key(trained.run.seed)("report"), kind_of(trained.recipe)
    pairs = pairs_of(trained, train if trained.recipe.uses_labels else train.unlabelled())
    chosen = evaluation.chosen
    queries = [int(i) for i in key.permutation(len(test))[:6]]
    config, run = trained.folder.config(), trained.run
    content = ReportContent(
        title=f"{trained.recipe.card.title} on {Path(train.source).name}",
        summary=f"{kind.summary(train)}, {trained.step:,} steps, seed {run.seed}.",
        card=trained.recipe.card,
        table=evaluation.table,
        log=trained.metrics,
        pairs=None if pairs is None else kind.shown_pair(trained, pairs),
        map=project(evaluation.test, key=key),
        labels=torch.as_tensor(test.labels) if test.labels is not None else None,
        class_names=test.classes or None,
        neighbours=find_neighbours(
            evaluation.train, evaluation.test, kind.shown(chosen), kind.shown(test), queries,
            train_y=torch.as_tensor(chosen.labels) if chosen.labels is not None else None,
            test_y=torch.as_tensor(test.labels) if test.labels is not None else None, split=evaluation.asked is None,
        ),
        spectra={"trained encoder": spectrum(evaluation.test), "untrained encoder": spectrum(evaluation.untrained)},
        config=config,
        command=repeating(recipes.of(trained.recipe).name, str(trained.folder.config_file)),
        versions={"nearfar": nearfar.__version__, "torch": torch.__version__, "python": sys.version.split()[0]},
        seconds=training_seconds(trained.metrics),
    )  # fmt: skip
    path = trained.folder.path / "report.html"
    write_report(path, content)
    return path
