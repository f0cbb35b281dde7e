"""Which method suits these data? Several are tried for a given time and ranked without labels, by the geometry of what they learned.

The score is the mean of two ranks: how far two views of a sample lie apart compared to how far samples lie apart (alignment against
uniformity, in one number), and how many directions are used (effective rank). It tells methods that failed from methods that work; between
methods that all work it is a hint, better on some data than on others. `AGREEMENT` says how good, measured by benchmarks/choose.py.
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
"""What is tried where nobody says what: methods that need nothing but the samples."""
TEXT_EXTENSIONS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
PACE_STEPS, MIN_STEPS = 6, 20
"""Steps by which the pace of a method is measured, and steps below which its result says nothing."""
TRAINING_SHARE = 0.8
"""Share of the budget that is for training; the rest is for reading and measuring."""
MAX_SAMPLES = 1024
"""Samples that are measured, at most."""


@dataclass(frozen=True)
class Trial:
    """One method's turn. `score` in [0, 1]: the mean of its two ranks, 1 the best."""

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
        return compute_relative_alignment(asdict(self))


@dataclass(frozen=True)
class Choice:
    """Best first. `untrained`: the encoder that all began with, in its own geometry."""

    trials: list[Trial]
    untrained: Mapping[str, float]

    @property
    def caution(self) -> str:
        return AGREEMENT_CAUTION

    def to_json(self) -> str:
        found = [asdict(t) | {"relative_alignment": t.relative_alignment} for t in self.trials]
        return json.dumps(
            {"best": self.trials[0].recipe, "caution": self.caution, "untrained": dict(self.untrained), "trials": found}, indent=2
        )

    def render(self) -> str:
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
    """Train each method for its share of `budget` seconds, on the same encoder, and rank what came of it.

    data      what `nearfar.fit` takes
    recipe_names  recipes; by default a handful that suit the kind of data
    out       a folder to keep the trials in, as runs
    max_steps  no method gets more steps than this, whatever the budget
    settings  any field of `TrainConfig` or `RuntimeConfig`, the same for all
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
    """Best first, with their scores."""
    scores = score_without_labels([asdict(t) for t in trials])
    scored = [replace(t, score=float(s)) for t, s in zip(trials, scores, strict=True)]
    return sorted(scored, key=lambda t: -t.score)


def compute_relative_alignment(row: Mapping[str, Any]) -> float:
    """Mean squared distance of two views of a sample, over about that of two samples: twice the squared spread."""
    return row["alignment"] / max(2 * row["spread"] ** 2, 1e-12)


def score_without_labels(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The mean of the ranks of relative alignment (low is good) and of effective rank (high is good), scaled to [0, 1]; ties share."""
    relative = np.array([compute_relative_alignment(row) for row in rows])
    directions = np.array([row["effective_rank"] for row in rows])
    return (_ranks(-relative) + _ranks(directions)) / 2


def _ranks(values: np.ndarray) -> np.ndarray:
    below, ties = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1) - 1
    return (below + ties / 2) / max(len(values) - 1, 1)


def measure_without_labels(model: Model, splits: Splits) -> dict[str, float]:
    """Alignment, uniformity, effective rank and spread on samples that were not trained on, where there are any.

    Images get SimCLR's views whatever the method's own are, so that methods are measured alike.
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
    if model.recipe.card.modality == "text":  # a text under two dropout masks
        tokens = part.read(np.arange(len(part)))
        return modality.encode_views(model, (tokens, tokens))
    own = draw_test_views(model, part, len(part))
    if own is None:
        raise UsageError(f"{model.recipe.card.title} has no two views of a sample: it cannot be ranked without labels")
    return modality.encode_views(model, own)


class PaceHook(Hook):
    """When each step was done."""

    def start(self, session: TrainingSession) -> None:
        self.at = [time.perf_counter()]

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        if session.device.type == "cuda":
            torch.cuda.synchronize(session.device)
        self.at.append(time.perf_counter())

    @property
    def pace(self) -> float:
        """Seconds a step; the first two, in which everything is made for the first time, do not count."""
        return (self.at[-1] - self.at[2]) / (len(self.at) - 3)


def _try(name: str, data: Any, seconds: float, folder: Path, kept: bool, most: int | None, **settings: Any) -> tuple[Trial, Model, Splits]:
    began, clock = time.perf_counter(), PaceHook()
    fit(name, data, hooks=[clock], steps=PACE_STEPS, **settings)
    left = TRAINING_SHARE * (seconds - (time.perf_counter() - began))
    steps = int(left / clock.pace)
    if steps < MIN_STEPS:
        needed = seconds + (MIN_STEPS * clock.pace - left) / TRAINING_SHARE
        raise UsageError(
            f"--budget: {seconds:.1f} s for {name} are enough for {max(steps, 0)} steps, and fewer than {MIN_STEPS} say nothing: "
            f"give about {1.2 * needed:.0f} s for each method"
        )
    steps = min(steps, most or steps)
    model = fit(name, data, out=folder if kept else None, steps=steps, **settings)
    splits = load_model_splits(model, data)
    found = measure_without_labels(model, splits)
    return Trial(name, steps, round(time.perf_counter() - began, 2), **found, run=str(folder) if kept else ""), model, splits


def _modality(data: Any) -> str:
    """Of the kinds that there are candidates for, that of the data, by their name; the reader says what it does not find there."""
    if not isinstance(data, (str, os.PathLike)):
        return "image"
    name, files = str(data).lower(), list(_some_files(Path(data)))
    sounds = sum(path.suffix.lower() in SOUND_EXTENSIONS for path in files)
    if name == "tones" or name.endswith(SOUND_EXTENSIONS) or 2 * sounds > len(files):
        return "audio"
    return "text" if name.startswith("docstring") or name.endswith(TEXT_EXTENSIONS) else "image"


def _some_files(folder: Path) -> Iterator[Path]:
    """The first files of a folder: enough to see what it holds."""
    return itertools.islice((path for path in folder.rglob("*") if path.is_file()), 100) if folder.is_dir() else iter(())


MEASURED_AGREEMENT = {
    "CIFAR-10": ("on CIFAR-10", 13, 0.79, 6, 0.84),
    "digits": ("on handwritten digits", 13, 0.68, 6, 0.60),
    "digits, stored": ("on the runs on digits that it was settled on", 26, 0.61, 15, 0.16),
}
"""Spearman's correlation with labels over many variants, and over recipes at their usual settings: benchmarks/results/choose.json."""
AGREEMENT_CAUTION = (
    "Caution: this order and that of a probe on 5 labels a class agree (rank correlation, mean of 3 seeds) "
    + "; ".join(
        f"{where} by {every:.2f} over {n} recipes and settings, good and bad, and by {usual:.2f} over {m} recipes at their usual settings"
        for where, n, every, m, usual in MEASURED_AGREEMENT.values()
    )
    + ". It finds methods that fail; among those that work it is a hint. With labels `nearfar compare` is the better judge."
)
