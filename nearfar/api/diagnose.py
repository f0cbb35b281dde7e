"""Diagnosis of a run: findings with their measurements, thresholds and remedies.

The thresholds were set on runs of seed 0: some broken on purpose, others healthy runs of eleven recipes.
benchmarks/diagnose.py measures the error rate on other seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from nearfar.api.symptoms import MAX_ROWS, explain_missing_symptoms, measure_symptoms, uses_contrast
from nearfar.core import Recipe
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits


@dataclass(frozen=True)
class Limit:
    """Threshold of a measurement.

    A value on the wrong side is a symptom.
    """

    measure: str
    below: float | None = None
    above: float | None = None

    def is_crossed(self, value: float) -> bool:
        """Return True if the value is on the wrong side of the threshold."""
        return (self.below is not None and value < self.below) or (self.above is not None and value > self.above)

    def __str__(self) -> str:
        return f"below {self.below:g}" if self.below is not None else f"above {self.above:g}"


@dataclass(frozen=True)
class Remedy:
    """Advice.

    Advice about a flag applies only to recipes (or runs) with that setting.
    """

    text: str
    flag: str = ""
    to: Callable[[Any], Any] | None = None
    """Function from the current value to the suggested one. Advice that changes nothing is not given."""
    when: Callable[[Recipe], bool] = lambda recipe: True

    def describe(self, model: Model) -> str | None:
        """Return the advice for this run, or None if it does not apply."""
        settings = {f.name: getattr(of, f.name) for of in (model.config, model.recipe) for f in fields(of)}
        if not self.when(model.recipe) or self.flag.replace("-", "_") not in settings | {"": None}:
            return None
        if self.to is None:
            return f"--{self.flag}: {self.text}" if self.flag else self.text
        own = settings[self.flag.replace("-", "_")]
        value = self.to(own)
        return None if value == own else f"--{self.flag} {value if isinstance(value, str) else f'{value:.6g}'}: {self.text}"


def scale_by(factor: float) -> Callable[[float], float]:
    """Return a function that multiplies a value by a factor."""
    return lambda value: factor * value


def uses_decorrelation(recipe: Recipe) -> bool:
    """Return True if the loss of the recipe decorrelates dimensions."""
    return recipe.card.score.startswith("cross-correlation")


@dataclass(frozen=True)
class Problem:
    """Problem that is reported if all its limits are crossed.

    `unless` names problems that cause this one. Only the cause is reported then.
    """

    name: str
    limits: tuple[Limit, ...]
    description: str
    """Meaning of the problem, with measurements by name."""
    origin: str
    """Runs that the thresholds separate. benchmarks/results/diagnose.json has the numbers."""
    remedies: tuple[Remedy, ...]
    unless: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Measurements that exist only for runs to which the problem does not apply."""


PROBLEMS = (
    Problem(
        "temperature too low",
        (Limit("negatives_in_use", below=0.2), Limit("spread", below=0.6)),
        "the loss of a sample uses {negatives_in_use:.1%} of its negatives only, and embeddings keep to a narrow cone (spread "
        "{spread:.2f}), because tiny differences decide already",
        "between SimCLR and MoCo v2 at tau 0.005 to 0.02, and both at tau 0.05 to 2 with SimCSE at 0.05",
        (Remedy("five times what it is", "temperature", scale_by(5)), Remedy("a smaller --lr, if the temperature is what the paper has")),
        without=("length",),  # vectors of free length act as their own temperature, whatever tau is
    ),
    Problem(
        "collapse",
        (Limit("spread", below=0.2),),
        "all samples are embedded in nearly the same place: their spread where the loss sees them is {spread:.3f}; an even sphere has 1",
        "between broken runs (alignment alone, BYOL without batch norm) and healthy ones of eleven recipes",
        (
            Remedy("batch statistics keep methods without negatives from the constant solution", "norm", lambda norm: "batch"),
            Remedy(
                "a slower target, or a predictor, if the recipe is your own",
                "ema-momentum",
                lambda m: 1 - (1 - m) / 10,
                lambda r: not uses_contrast(r),
            ),
            Remedy(
                "five times what it is: more weight on what keeps dimensions apart", "redundancy-weight", scale_by(5), uses_decorrelation
            ),
            Remedy("the first token of an encoder that was not pre-trained says little of its text", "pooling", lambda pool: "mean"),
            Remedy("a smaller --lr or a longer --warmup-ratio"),
            Remedy("a method with negatives: simclr, moco-v2", when=lambda r: not uses_contrast(r)),
        ),
        unless=("temperature too low",),
    ),
    Problem(
        "views too strong",
        (Limit("match", below=0.03),),
        f"of {MAX_ROWS} samples only {{match:.1%}} find their other view after training (chance: {1 / MAX_ROWS:.1%}): "
        "the views no longer show what they have in common",
        "between crops of 3 % to 10 % of the image, turned at random, and healthy runs, or even encoders before training",
        (
            Remedy("weaker views: larger crops, less distortion of color; `nearfar report RUN` shows pairs as the model sees them"),
            Remedy("crops of tiny images hold too little", "image-size"),
            Remedy("more --steps, if the training was short"),
        ),
        unless=("collapse",),
    ),
    Problem(
        "dimensional collapse",
        (Limit("rank_share", below=0.05),),
        "embeddings use few of their directions: the effective rank is {rank_share:.1%} of what it could be",
        "between Barlow Twins without its off-diagonal term and healthy runs of eleven recipes",
        (
            Remedy("five times what it is: more weight on the off-diagonal terms", "redundancy-weight", scale_by(5), uses_decorrelation),
            Remedy("half of what it is: a high temperature lets a few directions win", "temperature", scale_by(0.5)),
            Remedy("a narrower space than the data need directions", "dim"),
            Remedy("a recipe that decorrelates: barlow-twins, w-mse"),
        ),
        unless=("collapse", "views too strong"),
    ),
    Problem(
        "views too weak",
        (Limit("match_before", above=0.9),),
        f"an untrained encoder already finds the other view of {{match_before:.1%}} of {MAX_ROWS} samples: there is nothing to learn from "
        "telling them apart",
        "between rotations by up to 3 degrees alone and the views of eleven recipes, on digits",
        (
            Remedy("stronger views: smaller crops, distortion of color, as simclr has them"),
            Remedy("a recipe whose similarity is not made of views: supcon"),
        ),
    ),
    Problem(
        "views too weak",
        (Limit("view_shift", below=1e-4),),
        "two passes of a text through the encoder differ by {view_shift:.1g} of the distance of two texts: its dropout does nothing",
        "between dropout 0, where nothing but rounding is left, and dropout 0.1",
        (
            Remedy("as in the paper", "dropout", lambda dropout: max(dropout, 0.1)),
            Remedy("edits in addition to dropout", "augmentation", lambda views: "erase-tokens" if views == "dropout" else views),
        ),
    ),
    Problem(
        "temperature too high",
        (Limit("negatives_in_use", above=0.985),),
        "all negatives weigh alike, near or far: the loss uses {negatives_in_use:.1%} of them evenly, and cannot tell hard from easy",
        "between SimCLR at tau 5 and 20, and healthy runs; even embeddings of width 128 at tau 0.5 would stay below it too",
        (Remedy("a tenth of what it is", "temperature", scale_by(0.1)),),
        unless=("collapse", "views too strong", "views too weak"),
    ),
    Problem(
        "false negatives",
        (Limit("meeting_twin", above=0.05),),
        "{meeting_twin:.1%} of the samples meet a copy or a near copy of themselves among the negatives of a batch",
        "between digits, MNIST, Fashion-MNIST and CIFAR-10 as they are, and a set in which every image is there eight times",
        (
            Remedy("take the copies out of the data"),
            Remedy("a smaller one meets fewer of them", "batch-size"),
            Remedy("a loss that allows for them: debiased-contrastive; or none: byol, barlow-twins"),
        ),
    ),
    Problem(
        "false negatives",
        (Limit("same_label", above=0.25),),
        "{same_label:.1%} of the negatives share the label of the sample they are pushed away from",
        "as many as in four balanced classes; all recipes were measured on ten",
        (
            Remedy("supcon: labels say which samples are alike"),
            Remedy("debiased-contrastive with the share of false negatives as its prior", "false-negative-share"),
            Remedy("debiased-contrastive, or a method without negatives: byol, barlow-twins"),
        ),
    ),
    Problem(
        "anisotropy",
        (Limit("mean_cosine", above=0.98),),
        "representations point into a narrow cone: two different samples have a cosine of {mean_cosine:.3f} on average, so that cosines "
        "hardly tell samples apart",
        "between a constant added to the features, and healthy runs or even untrained convnets",
        (
            Remedy("center the vectors before comparing them: subtract the mean of the training split, or whiten"),
            Remedy("a method that spreads over the sphere: simclr, simcse-unsup"),
        ),
        unless=("collapse",),
    ),
    Problem(
        "leak between training and test",
        (Limit("leaked", above=0.02),),
        "{leaked:.1%} of the test samples are in the training split too, as they are or nearly: accuracies on the test split are too high",
        "above what is found in digits, MNIST, Fashion-MNIST, CIFAR-10 and the standard library's docstrings as they are",
        (
            Remedy("take the copies out of the data before they are divided"),
            Remedy("divide by source (person, document, video) instead of by sample: give data with a test split of their own"),
        ),
    ),
)
"""Problems in the order of the search."""


@dataclass(frozen=True)
class Finding:
    """A problem that was found in a run."""

    name: str
    description: str
    reason: list[str]
    """Measured value and threshold of every symptom, as text."""
    origin: str
    remedies: list[str]


@dataclass(frozen=True)
class Diagnosis:
    """All findings and measurements of a run."""

    findings: list[Finding]
    symptoms: dict[str, float]
    """All measurements, including normal ones."""
    not_examined: str = ""
    """Reason why nothing was measured. Empty if something was measured."""

    @property
    def problems_not_examined(self) -> list[str]:
        """Return the names of the problems that do not apply to this method or these data."""
        names = dict.fromkeys(a.name for a in PROBLEMS)
        return [n for n in names if not any(_applies(a, self.symptoms) for a in PROBLEMS if a.name == n)]

    def to_json(self) -> str:
        """Return the diagnosis as JSON."""
        found = [asdict(finding) for finding in self.findings]
        said = {"findings": found, "symptoms": self.symptoms, "left_out": self.problems_not_examined, "unexamined": self.not_examined}
        return json.dumps(said, indent=2)

    def render(self) -> str:
        """Return the diagnosis as text."""
        if self.not_examined:
            return f"Nothing was measured: {self.not_examined}."
        lines = []
        for finding in self.findings:
            lines += [f"{finding.name.upper()}: {finding.description}.", f"  measured: {'; '.join(finding.reason)}"]
            lines += [f"  threshold: {finding.origin}", *(f"  try: {t}" for t in finding.remedies), ""]
        if not self.findings:
            lines += ["No finding.", ""]
        lines += [f"{ailment.name:32}{_checked(ailment, self.symptoms)}" for ailment in PROBLEMS if _applies(ailment, self.symptoms)]
        lines += (
            [f"Not checked, because it does not apply here: {', '.join(self.problems_not_examined)}."] if self.problems_not_examined else []
        )
        return "\n".join(lines)


def diagnose(model: Model, data: Any = None) -> Diagnosis:
    """Measure a run on its own data and return the problems found.

    Pass `data` again if the run was trained on an array.
    """
    splits = load_model_splits(model, data)
    symptoms = measure_symptoms(model, splits)
    return Diagnosis(find_problems(symptoms, model), symptoms, explain_missing_symptoms(model, splits))


def find_problems(symptoms: Mapping[str, float], model: Model) -> list[Finding]:
    """Return the findings for measured symptoms.

    A problem is left out if its cause is found.
    """
    found: dict[str, Finding] = {}
    for ailment in PROBLEMS:
        if _present(ailment, symptoms) and not found.keys() & {ailment.name, *ailment.unless}:
            reason = [f"{limit.measure} {symptoms[limit.measure]:.4g}, {limit}" for limit in ailment.limits]
            tries = [text for advice in ailment.remedies if (text := advice.describe(model))]
            found[ailment.name] = Finding(ailment.name, ailment.description.format(**symptoms), reason, ailment.origin, tries)
    return list(found.values())


def _applies(ailment: Problem, symptoms: Mapping[str, float]) -> bool:
    return all(limit.measure in symptoms for limit in ailment.limits) and not symptoms.keys() & ailment.without


def _present(ailment: Problem, symptoms: Mapping[str, float]) -> bool:
    return _applies(ailment, symptoms) and all(limit.is_crossed(symptoms[limit.measure]) for limit in ailment.limits)


def _checked(ailment: Problem, symptoms: Mapping[str, float]) -> str:
    return ", ".join(f"{limit.measure} {symptoms[limit.measure]:.4g} (a sign if {limit})" for limit in ailment.limits)
