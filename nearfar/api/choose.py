"""The `choose` command: trains several methods for a given time and ranks them without labels.

The score is the mean of two ranks. The first rank compares the distance of two views of a sample with the
distance of two samples. It combines alignment and uniformity in one number. The second rank is the number of
directions in use (effective rank). The score separates methods that failed from methods that work. It only
hints at the order of methods that work, and the hint is better on some data than on others.
`MEASURED_AGREEMENT` holds the agreement with labels, measured by benchmarks/choose.py.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar import recipes
from nearfar.api.fit import fit
from nearfar.core import Embeddings, RandomKey, Rows, UsageError
from nearfar.data import Splits
from nearfar.data.audio.readers import SOUND_EXTENSIONS
from nearfar.evaluate import effective_rank, spread
from nearfar.losses import alignment, uniformity
from nearfar.modalities import get_modality
from nearfar.similarity import choose_views, simclr_views
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views, load_model_splits
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook

CANDIDATES = {
    "image": ("simclr", "moco-v2", "byol", "barlow-twins", "w-mse"),
    "text": ("simcse-unsup", "bert"),
    "audio": ("nandan-vepa", "cpc-audio"),
}
"""Methods to try by default. They need nothing but the samples."""
TEXT_EXTENSIONS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
PACE_STEPS, MIN_STEPS = 6, 20
"""Steps that measure the pace of a method, and the fewest steps of a meaningful trial."""
TRAINING_SHARE = 0.8
"""Share of the time budget for training. The rest is for reading and measuring."""
MAX_SAMPLES = 1024
"""Largest number of samples to measure."""


@dataclass(frozen=True)
class Trial:
    """Result of one method.

    `score` is the mean of its two ranks, in [0, 1]; 1 is best.
    """

    recipe: str
    steps: int
    seconds: float
    alignment: float
    uniformity: float
    effective_rank: float
    spread: float
    run: str = ""
    score: float = 0.0

    @property
    def relative_alignment(self) -> float:
        """Return the relative alignment of the trained encoder."""
        return compute_relative_alignment(asdict(self))


@dataclass(frozen=True)
class Choice:
    """Ranked trials, best first.

    `untrained` holds the measurements of the untrained encoder, which is the same for all methods.
    """

    trials: list[Trial]
    untrained: Mapping[str, float]

    @property
    def caution(self) -> str:
        """Return a sentence about the limits of the ranking."""
        return AGREEMENT_CAUTION

    def to_json(self) -> str:
        """Return the ranking as JSON."""
        found = [asdict(t) | {"relative_alignment": t.relative_alignment} for t in self.trials]
        return json.dumps(
            {"best": self.trials[0].recipe, "caution": self.caution, "untrained": dict(self.untrained), "trials": found}, indent=2
        )

    def render(self) -> str:
        """Return the ranking as a text table."""
        lines = [f"{'':24}{'score':>7}{'alignment':>11}{'uniformity':>12}{'relative':>10}{'eff. rank':>11}{'steps':>8}{'seconds':>9}"]
        lines.append("-" * len(lines[0]))
        for t in self.trials:
            shown = f"{t.score:7.2f}{t.alignment:11.3f}{t.uniformity:12.3f}{t.relative_alignment:10.3f}{t.effective_rank:11.1f}"
            lines.append(f"{t.recipe:24}{shown}{t.steps:8,}{t.seconds:9.1f}")
        before = self.untrained
        relative = compute_relative_alignment(before)
        about = f"{before['alignment']:11.3f}{before['uniformity']:12.3f}{relative:10.3f}{before['effective_rank']:11.1f}"
        lines.append(f"{'untrained encoder':24}{'–':>7}{about}")
        where = f", kept in {self.trials[0].run}" if self.trials[0].run else ""
        return "\n".join([*lines, f"Recommended: {self.trials[0].recipe}{where}.", self.caution])


def choose(
    data: Any,
    budget: float,
    recipe_names: Sequence[str] | None = None,
    *,
    out: str | os.PathLike | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> Choice:
    """Train each method for an equal share of the time budget and rank the results.

    All methods use the same encoder.

    Args:
        data: as in `nearfar.fit`.
        budget: seconds for all trials together.
        recipe_names: recipes to try. Default: a few recipes for the modality of the data.
        out: folder that keeps the trials as runs. Default: the trials are deleted.
        max_steps: largest number of steps of each method, independent of the budget.
        seed: random seed.
        settings: any field of `TrainConfig` or `RuntimeConfig`, the same for all methods.

    Raises:
        UsageError: if the budget is too small, or if the recipes differ in modality.
    """
    recipe_names = list(recipe_names or CANDIDATES[_modality(data)])
    if len(recipe_names) < 2 or len(set(recipe_names)) < len(recipe_names):
        raise UsageError(f"--recipes: name at least two different methods to choose from, got {', '.join(recipe_names)}")
    modalities = {recipes.load_method(name).recipe_class.card.modality for name in recipe_names}
    if len(modalities) > 1:
        raise UsageError(f"--recipes: methods for {' and for '.join(sorted(modalities))} cannot be tried on the same data")
    with tempfile.TemporaryDirectory() as unused:
        folder = Path(unused if out is None else out)
        tried, untrained = [], {}
        for name in recipe_names:
            trial, model, splits = _try(
                name, data, budget / len(recipe_names), folder / name, out is not None, max_steps, seed=seed, **settings
            )
            tried.append(trial)
            untrained = untrained or measure_without_labels(model.build_untrained(), splits)
    return Choice(rank_trials(tried), untrained)


def rank_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Compute the score of each trial and return the trials, best first."""
    scores = score_without_labels([asdict(t) for t in trials])
    scored = [replace(t, score=float(s)) for t, s in zip(trials, scores, strict=True)]
    return sorted(scored, key=lambda t: -t.score)


def compute_relative_alignment(row: Mapping[str, Any]) -> float:
    """Return the squared distance of two views divided by that of two samples.

    Both are means over the samples. The mean squared distance of two samples is about twice the squared
    spread.
    """
    return row["alignment"] / max(2 * row["spread"] ** 2, 1e-12)


def score_without_labels(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return the mean of two ranks for each row, scaled to [0, 1].

    A low relative alignment and a high effective rank are good. Ties share a rank.
    """
    relative = np.array([compute_relative_alignment(row) for row in rows])
    directions = np.array([row["effective_rank"] for row in rows])
    return (_ranks(-relative) + _ranks(directions)) / 2


def _ranks(values: np.ndarray) -> np.ndarray:
    below, ties = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1) - 1
    return (below + ties / 2) / max(len(values) - 1, 1)


def measure_without_labels(model: Model, splits: Splits) -> dict[str, float]:
    """Measure alignment, uniformity, effective rank and spread without labels.

    The samples come from the test split. Without a test split they come from the training split. Images get
    SimCLR's views for every method, so that methods are comparable.
    """
    data = splits.train if splits.test is None else splits.test
    rng_key = RandomKey(model.config.seed)("choose")
    part = data.subset(np.sort(rng_key("sample").permutation(len(data))[:MAX_SAMPLES])).drop_labels()
    h = model.encode(part)
    a, b = _two_views(model, part, rng_key)
    found = {"alignment": float(alignment(a, b)), "uniformity": float(uniformity(h))}
    return found | {"effective_rank": effective_rank(h), "spread": spread(h)}


def _two_views(model: Model, part: Any, rng_key: RandomKey) -> tuple[Tensor, Tensor]:
    modality = get_modality(model.recipe)
    if model.recipe.card.modality == "image":
        views, ids = choose_views(model.net.sizes, simclr_views), np.arange(len(part))
        rows = Rows(ids, ids, ids)
        drawn = views.view(views.read(part, rows, rng_key("read")), rows, rng_key("views"))
        return modality.encode_views(model, (drawn["v0"], drawn["v1"]))
    if model.recipe.card.modality == "text":  # one text under two dropout masks
        tokens = part.read(np.arange(len(part)))
        return modality.encode_views(model, (tokens, tokens))
    own = draw_test_views(model, part, len(part))
    if own is None:
        raise UsageError(f"{model.recipe.card.title} has no two views of a sample: it cannot be ranked without labels")
    return modality.encode_views(model, own)


class PaceHook(Hook):
    """Hook that records the time of each step."""

    def start(self, session: TrainingSession) -> None:
        self.at = [time.perf_counter()]

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        if session.device.type == "cuda":
            torch.cuda.synchronize(session.device)
        self.at.append(time.perf_counter())

    @property
    def pace(self) -> float:
        """Return the seconds per step.

        The first two steps do not count, because they include one-time setup.
        """
        return (self.at[-1] - self.at[2]) / (len(self.at) - 3)


def _try(name: str, data: Any, seconds: float, folder: Path, kept: bool, most: int | None, **settings: Any) -> tuple[Trial, Model, Splits]:
    began, clock = time.perf_counter(), PaceHook()
    fit(name, data, hooks=[clock], steps=PACE_STEPS, **settings)
    left = TRAINING_SHARE * (seconds - (time.perf_counter() - began))
    steps = int(left / clock.pace)
    if steps < MIN_STEPS:
        needed = seconds + (MIN_STEPS * clock.pace - left) / TRAINING_SHARE
        raise UsageError(
            f"--budget: {seconds:.1f} s for {name} are enough for {max(steps, 0)} steps, and fewer than {MIN_STEPS} are too few to rank: "
            f"give about {1.2 * needed:.0f} s for each method"
        )
    steps = min(steps, most or steps)
    model = fit(name, data, out=folder if kept else None, steps=steps, **settings)
    splits = load_model_splits(model, data)
    found = measure_without_labels(model, splits)
    return Trial(name, steps, round(time.perf_counter() - began, 2), **found, run=str(folder) if kept else ""), model, splits


def _modality(data: Any) -> str:
    """Infer the modality of the data from file names.

    Only modalities with candidate methods are considered. The data reader reports samples that it cannot
    read.
    """
    if not isinstance(data, (str, os.PathLike)):
        return "image"
    name, files = str(data).lower(), list(_some_files(Path(data)))
    sounds = sum(path.suffix.lower() in SOUND_EXTENSIONS for path in files)
    if name == "tones" or name.endswith(SOUND_EXTENSIONS) or 2 * sounds > len(files):
        return "audio"
    return "text" if name.startswith("docstring") or name.endswith(TEXT_EXTENSIONS) else "image"


def _some_files(folder: Path) -> Iterator[Path]:
    """Yield at most 100 files of a folder, enough to recognize its content."""
    return itertools.islice((path for path in folder.rglob("*") if path.is_file()), 100) if folder.is_dir() else iter(())


MEASURED_AGREEMENT = {
    "CIFAR-10": ("on CIFAR-10", 13, 0.79, 6, 0.84),
    "digits": ("on handwritten digits", 13, 0.68, 6, 0.60),
    "digits, stored": ("on the runs on digits that it was settled on", 26, 0.61, 15, 0.16),
}
"""Spearman's correlation with label-based scores, from benchmarks/results/choose.json. For each dataset:
over many variants, and over recipes at their usual settings."""
AGREEMENT_CAUTION = (
    "Caution: this order and that of a probe on 5 labels a class agree (rank correlation, mean of 3 seeds) "
    + "; ".join(
        f"{where} by {every:.2f} over {n} recipes and settings, good and bad, and by {usual:.2f} over {m} recipes at their usual settings"
        for where, n, every, m, usual in MEASURED_AGREEMENT.values()
    )
    + ". It finds methods that fail; among those that work it is a hint. With labels `nearfar compare` is the better judge."
)
