"""The `choose` command: trains several methods for a given time and ranks them without labels.

The modality decides how. Nodes, walks, words and triples are ranked by one measure of their own, such as the
prediction of edges (`Modality.score_without_labels`). For all others the score is the mean of two ranks. The
first rank compares the distance of two views of a sample with the distance of two samples. It combines
alignment and uniformity in one number. The second rank is the number of directions in use (effective rank).
The score separates methods that failed from methods that work. It only hints at the order of methods that
work, and the hint is better on some data than on others. `MEASURED_AGREEMENT` holds the agreement with labels,
measured by benchmarks/choose.py.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar import recipes
from nearfar.api.fit import fit
from nearfar.core import Embeddings, RandomKey, UsageError
from nearfar.core.modality import Modality
from nearfar.data import Splits
from nearfar.evaluate import effective_rank, spread
from nearfar.losses import alignment, uniformity
from nearfar.modalities import find_modality, list_modalities
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views, load_model_splits
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook

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
    own_score: float | None = None
    """Value of the modality's own measure, if it ranks by one."""

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
    measure: str = ""
    """Name of the modality's own measure. Empty: ranked by alignment and effective rank."""

    @property
    def caution(self) -> str:
        """Return a sentence about the limits of the ranking."""
        if self.measure:
            return (
                f"Caution: ranked by the {self.measure} alone, on data that the methods have seen. "
                "With labels `nearfar compare` is the better judge."
            )
        return AGREEMENT_CAUTION

    def to_json(self) -> str:
        """Return the ranking as JSON."""
        found = [asdict(t) | {"relative_alignment": t.relative_alignment} for t in self.trials]
        return json.dumps(
            {
                "best": self.trials[0].recipe,
                "measure": self.measure,
                "caution": self.caution,
                "untrained": dict(self.untrained),
                "trials": found,
            },
            indent=2,
        )

    def render(self) -> str:
        """Return the ranking as a text table."""
        if self.measure:
            return self._render_own_measure()
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

    def _render_own_measure(self) -> str:
        width = len(self.measure) + 2
        lines = [f"{'':24}{self.measure:>{width}}{'steps':>8}{'seconds':>9}"]
        lines.append("-" * len(lines[0]))
        lines += [f"{t.recipe:24}{t.own_score:{width}.3f}{t.steps:8,}{t.seconds:9.1f}" for t in self.trials]
        lines.append(f"{'untrained encoder':24}{self.untrained['own_score']:{width}.3f}")
        return "\n".join([*lines, f"Recommended: {self.trials[0].recipe}.", self.caution])


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
    if recipe_names is not None and (len(recipe_names) < 2 or len(set(recipe_names)) < len(recipe_names)):
        raise UsageError(f"--recipes: name at least two different methods to choose from, got {', '.join(recipe_names)}")
    recipe_names = list(recipe_names or recognize_modality(data).candidates)
    modalities = {recipes.load_method(name).recipe_class.card.modality for name in recipe_names}
    if len(modalities) > 1:
        raise UsageError(f"--recipes: methods for {' and for '.join(sorted(modalities))} cannot be tried on the same data")
    modality = find_modality(modalities.pop())
    with tempfile.TemporaryDirectory() as unused:
        folder = Path(unused if out is None else out)
        tried, untrained = [], {}
        for name in recipe_names:
            trial, model, splits = _try(
                name, data, budget / len(recipe_names), folder / name, out is not None, max_steps, seed=seed, **settings
            )
            tried.append(trial)
            untrained = untrained or measure_without_labels(model.build_untrained(), splits)
    return Choice(rank_trials(tried), untrained, modality.ranking_measure)


def rank_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Compute the score of each trial and return the trials, best first."""
    own = [t.own_score for t in trials]
    scores = _ranks(np.array(own)) if None not in own else score_without_labels([asdict(t) for t in trials])
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


def measure_without_labels(model: Model, splits: Splits) -> dict[str, Any]:
    """Measure alignment, uniformity, effective rank and spread without labels, or the modality's own measure.

    The samples come from the test split. Without a test split they come from the training split. Views are
    comparable for all methods where the modality draws them.
    """
    data = splits.train if splits.test is None else splits.test
    rng_key, modality = RandomKey(model.config.seed)("choose"), model.modality
    if modality.ranking_measure:
        h = model.encode(modality.draw_samples(data, MAX_SAMPLES, rng_key("sample")))
        found: dict[str, Any] = {"own_score": modality.score_without_labels(model, splits, rng_key("own")), "alignment": float("nan")}
    else:
        part = modality.draw_samples(data, MAX_SAMPLES, rng_key("sample")).drop_labels()
        h = model.encode(part)
        found = {"alignment": float(alignment(*_encode_two_views(model, part, rng_key)))}
    return found | {"uniformity": float(uniformity(h)), "effective_rank": effective_rank(h), "spread": spread(h)}


def _encode_two_views(model: Model, part: Any, rng_key: RandomKey) -> tuple[Tensor, Tensor]:
    found = model.modality.encode_ranking_views(model, part, rng_key)
    if found is not None:
        return found
    views = draw_test_views(model, part, len(part))
    if views is None:
        raise UsageError(f"{model.recipe.card.title} has no two views of a sample: it cannot be ranked without labels")
    return model.modality.encode_views(model, views)


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


def recognize_modality(data: Any) -> Modality:
    """Return the modality that the data look like, among those with default methods.

    The data reader reports samples that it cannot read.

    Raises:
        UsageError: if the data look like no modality.
    """
    known = [modality for modality in map(find_modality, list_modalities()) if modality.candidates]
    found = [modality for modality in known if modality.recognizes(data)]
    if not found:
        named = ", ".join(modality.plural for modality in known)
        raise UsageError(f"cannot tell which kind of data {data!r} is: name the methods to try with --recipes (known kinds: {named})")
    return min(found, key=lambda modality: modality.recognition_order)


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
