"""Report of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from nearfar import recipes
from nearfar.api.evaluate import measure_model
from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.evaluate import project_to_2d, spectrum
from nearfar.reports.model_card import build_rerun_command
from nearfar.reports.report import ReportContent, write_report
from nearfar.reports.report_samples import find_neighbors
from nearfar.train.model import Model
from nearfar.train.model_data import draw_first_pairs
from nearfar.train.run_folder import compute_training_seconds
from nearfar.version import __version__


def write_model_report(model: Model, evaluation: Evaluation | None = None, *, progress: ProgressCallback | None = None) -> Path:
    """Write RUN/report.html and return its path.

    Args:
        model: a trained model with a run folder.
        evaluation: results of `measure_model`. Default: they are measured now.
        progress: called with the number of encoded samples and the number of all samples.
    """
    if model.run_folder is None:
        raise UsageError("this run has no folder to write a report to: train with out=RUN")
    evaluation = evaluation or measure_model(model, progress=progress)
    train, test = evaluation.splits.train, evaluation.splits.test if evaluation.test_samples is None else evaluation.test_samples
    assert test is not None
    rng_key, modality = RandomKey(model.config.seed)("report"), model.modality
    pairs = draw_first_pairs(model, train if model.recipe.uses_labels else train.drop_labels())
    chosen = evaluation.train_samples
    queries = [int(i) for i in rng_key.permutation(len(test))[:6]]
    stored_config, config = model.run_folder.read_config(), model.config
    content = ReportContent(
        title=f"{model.recipe.card.title} on {Path(train.source).name}",
        summary=f"{modality.summarize_data(train)}, {model.step:,} steps, seed {config.seed}.",
        card=model.recipe.card,
        table=evaluation.table,
        log=model.metrics,
        pairs=None if pairs is None else modality.render_views(model, pairs),
        map=project_to_2d(evaluation.test_features, rng_key=rng_key),
        labels=torch.as_tensor(test.labels) if test.labels is not None else None,
        class_names=test.classes or None,
        neighbors=find_neighbors(
            evaluation.train_features, evaluation.test_features,
            modality.build_sample_renderer(chosen), modality.build_sample_renderer(test), queries,
            train_labels=torch.as_tensor(chosen.labels) if chosen.labels is not None else None,
            test_labels=torch.as_tensor(test.labels) if test.labels is not None else None, across_splits=evaluation.test_samples is None,
        ),
        spectra={"trained encoder": spectrum(evaluation.test_features), "untrained encoder": spectrum(evaluation.untrained_features)},
        stored_config=stored_config,
        command=build_rerun_command(recipes.find_method(model.recipe).name, str(model.run_folder.config_file)),
        versions={"nearfar": __version__, "torch": torch.__version__, "python": sys.version.split()[0]},
        seconds=compute_training_seconds(model.metrics),
    )  # fmt: skip
    path = model.run_folder.path / "report.html"
    write_report(path, content)
    return path
