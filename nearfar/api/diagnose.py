"""What is wrong with a run, in words: each finding with the number that says so, its threshold, and what to try.

Thresholds were set on trainings of seed 0 that were broken on purpose and on healthy ones of eleven recipes; how often they are wrong on
other seeds is measured by benchmarks/diagnose.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from nearfar.api.evaluate import splits_of
from nearfar.api.symptoms import ROWS, contrasts, measure_symptoms, nothing_measured
from nearfar.core import Recipe
from nearfar.train.model import Trained


@dataclass(frozen=True)
class Limit:
    """A measurement on the wrong side of its threshold is a symptom."""

    measure: str
    below: float | None = None
    above: float | None = None

    def crossed(self, value: float) -> bool:
        return (self.below is not None and value < self.below) or (self.above is not None and value > self.above)

    def __str__(self) -> str:
        return f"below {self.below:g}" if self.below is not None else f"above {self.above:g}"


@dataclass(frozen=True)
class Try:
    """Advice. One about a flag is for recipes (or runs) that have that setting."""

    says: str
    flag: str = ""
    to: Callable[[Any], Any] | None = None
    """From the run's own value to the one to try; advice that would change nothing is not given."""
    when: Callable[[Recipe], bool] = lambda recipe: True

    def text(self, trained: Trained) -> str | None:
        """As it is given for this run; None if it is not."""
        settings = {f.name: getattr(of, f.name) for of in (trained.run, trained.recipe) for f in fields(of)}
        if not self.when(trained.recipe) or self.flag.replace("-", "_") not in settings | {"": None}:
            return None
        if self.to is None:
            return f"--{self.flag}: {self.says}" if self.flag else self.says
        own = settings[self.flag.replace("-", "_")]
        value = self.to(own)
        return None if value == own else f"--{self.flag} {value if isinstance(value, str) else f'{value:.6g}'}: {self.says}"


def times(factor: float) -> Callable[[float], float]:
    return lambda value: factor * value


def decorrelates(recipe: Recipe) -> bool:
    return recipe.card.score.startswith("cross-correlation")


@dataclass(frozen=True)
class Ailment:
    """All its limits must be crossed. `unless`: ailments that bring this one along, so that only they are named."""

    name: str
    limits: tuple[Limit, ...]
    says: str
    """What it means, with the measurements by name."""
    origin: str
    """What the thresholds lie between; benchmarks/results/diagnose.json has the numbers."""
    tries: tuple[Try, ...]
    unless: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Measurements that are made only where it does not apply."""


AILMENTS = (
    Ailment(
        "temperature too low",
        (Limit("negatives_in_use", below=0.2), Limit("spread", below=0.6)),
        "the loss of a sample looks at {negatives_in_use:.1%} of its negatives only, and embeddings keep to a narrow cone (spread "
        "{spread:.2f}), because tiny differences decide already",
        "between SimCLR and MoCo v2 at tau 0.005 to 0.02, and both at tau 0.05 to 2 with SimCSE at 0.05",
        (Try("five times what it is", "tau", times(5)), Try("a smaller --lr, if the temperature is what the paper has")),
        without=("length",),  # vectors of free length are their own temperature, whatever tau is
    ),
    Ailment(
        "collapse",
        (Limit("spread", below=0.2),),
        "all samples are embedded in nearly the same place: their spread where the loss sees them is {spread:.3f}; an even sphere has 1",
        "between broken runs (alignment alone, BYOL without batch norm) and healthy ones of eleven recipes",
        (
            Try("batch statistics keep methods without negatives from the constant solution", "norm", lambda norm: "batch"),
            Try("a slower target, or a predictor, if the recipe is your own", "m", lambda m: 1 - (1 - m) / 10, lambda r: not contrasts(r)),
            Try("five times what it is: more weight on what keeps dimensions apart", "lam", times(5), decorrelates),
            Try("the first token of an encoder that was not pre-trained says little of its text", "pool", lambda pool: "mean"),
            Try("a smaller --lr or a longer --warmup"),
            Try("a method with negatives: simclr, moco-v2", when=lambda r: not contrasts(r)),
        ),
        unless=("temperature too low",),
    ),
    Ailment(
        "views too strong",
        (Limit("match", below=0.03),),
        f"of {ROWS} samples only {{match:.1%}} find their other view after training (chance: {1 / ROWS:.1%}): the views no longer show "
        "what they have in common",
        "between crops of 3 % to 10 % of the image, turned at random, and healthy runs, or even encoders before training",
        (
            Try("weaker views: larger crops, less distortion of colour; `nearfar report RUN` shows pairs as the model sees them"),
            Try("crops of tiny images hold too little", "image-size"),
            Try("more --steps, if the training was short"),
        ),
        unless=("collapse",),
    ),
    Ailment(
        "dimensional collapse",
        (Limit("rank_share", below=0.05),),
        "embeddings use few of their directions: the effective rank is {rank_share:.1%} of what it could be",
        "between Barlow Twins without its off-diagonal term and healthy runs of eleven recipes",
        (
            Try("five times what it is: more weight on the off-diagonal terms", "lam", times(5), decorrelates),
            Try("half of what it is: a high temperature lets a few directions win", "tau", times(0.5)),
            Try("a narrower space than the data need directions", "dim"),
            Try("a recipe that decorrelates: barlow-twins, w-mse"),
        ),
        unless=("collapse", "views too strong"),
    ),
    Ailment(
        "views too weak",
        (Limit("match_before", above=0.9),),
        f"an untrained encoder already finds the other view of {{match_before:.1%}} of {ROWS} samples: there is nothing to learn from "
        "telling them apart",
        "between rotations by up to 3 degrees alone and the views of eleven recipes, on digits",
        (
            Try("stronger views: smaller crops, distortion of colour, as simclr has them"),
            Try("a recipe whose similarity is not made of views: supcon"),
        ),
    ),
    Ailment(
        "views too weak",
        (Limit("view_shift", below=1e-4),),
        "two passes of a text through the encoder differ by {view_shift:.1g} of the distance of two texts: its dropout does nothing",
        "between dropout 0, where nothing but rounding is left, and dropout 0.1",
        (
            Try("as in the paper", "dropout", lambda dropout: max(dropout, 0.1)),
            Try("edits beside dropout", "views", lambda views: "erase-tokens" if views == "dropout" else views),
        ),
    ),
    Ailment(
        "temperature too high",
        (Limit("negatives_in_use", above=0.985),),
        "all negatives weigh alike, near or far: the loss looks at {negatives_in_use:.1%} of them evenly, and cannot tell hard from easy",
        "between SimCLR at tau 5 and 20, and healthy runs; even embeddings of width 128 at tau 0.5 would stay below it too",
        (Try("a tenth of what it is", "tau", times(0.1)),),
        unless=("collapse", "views too strong", "views too weak"),
    ),
    Ailment(
        "false negatives",
        (Limit("meeting_twin", above=0.05),),
        "{meeting_twin:.1%} of the samples meet a copy or a near copy of themselves among the negatives of a batch",
        "between digits, MNIST, Fashion-MNIST and CIFAR-10 as they are, and a set in which every image is there eight times",
        (
            Try("take the copies out of the data"),
            Try("a smaller one meets fewer of them", "batch"),
            Try("a loss that allows for them: debiased-contrastive; or none: byol, barlow-twins"),
        ),
    ),
    Ailment(
        "false negatives",
        (Limit("same_label", above=0.25),),
        "{same_label:.1%} of the negatives share the label of the sample they are pushed away from",
        "as many as in four balanced classes; all recipes were measured on ten",
        (
            Try("supcon: labels say which samples are alike"),
            Try("debiased-contrastive with the share of false negatives as its prior", "eta"),
            Try("debiased-contrastive, or a method without negatives: byol, barlow-twins"),
        ),
    ),
    Ailment(
        "anisotropy",
        (Limit("mean_cosine", above=0.98),),
        "representations point into a narrow cone: two different samples have a cosine of {mean_cosine:.3f} on average, so that cosines "
        "hardly tell samples apart",
        "between a constant added to the features, and healthy runs or even untrained convnets",
        (
            Try("centre the vectors before comparing them: subtract the mean of the training split, or whiten"),
            Try("a method that spreads over the sphere: simclr, simcse-unsup"),
        ),
        unless=("collapse",),
    ),
    Ailment(
        "leak between training and test",
        (Limit("leaked", above=0.02),),
        "{leaked:.1%} of the test samples are in the training split too, as they are or nearly: accuracies on the test split are too high",
        "above what is found in digits, MNIST, Fashion-MNIST, CIFAR-10 and the standard library's docstrings as they are",
        (
            Try("take the copies out of the data before they are divided"),
            Try("divide by source (person, document, video) instead of by sample: give data with a test split of their own"),
        ),
    ),
)
"""In the order in which they are looked for."""


@dataclass(frozen=True)
class Finding:
    name: str
    says: str
    reason: list[str]
    """Measured value and threshold of every symptom, in words."""
    origin: str
    tries: list[str]


@dataclass(frozen=True)
class Diagnosis:
    findings: list[Finding]
    symptoms: dict[str, float]
    """Everything measured, also what is as it should be."""
    unexamined: str = ""
    """Why nothing was measured, if nothing was."""

    @property
    def left_out(self) -> list[str]:
        """What could not be looked for: it does not apply to this method or these data."""
        names = dict.fromkeys(a.name for a in AILMENTS)
        return [n for n in names if not any(_applies(a, self.symptoms) for a in AILMENTS if a.name == n)]

    def to_json(self) -> str:
        found = [asdict(finding) for finding in self.findings]
        said = {"findings": found, "symptoms": self.symptoms, "left_out": self.left_out, "unexamined": self.unexamined}
        return json.dumps(said, indent=2)

    def render(self) -> str:
        if self.unexamined:
            return f"Nothing was measured, so that nothing can be said: {self.unexamined}."
        lines = []
        for finding in self.findings:
            lines += [f"{finding.name.upper()}: {finding.says}.", f"  measured: {'; '.join(finding.reason)}"]
            lines += [f"  threshold: {finding.origin}", *(f"  try: {t}" for t in finding.tries), ""]
        if not self.findings:
            lines += ["No finding.", ""]
        lines += [f"{ailment.name:32}{_checked(ailment, self.symptoms)}" for ailment in AILMENTS if _applies(ailment, self.symptoms)]
        lines += [f"Not looked for, because it does not apply here: {', '.join(self.left_out)}."] if self.left_out else []
        return "\n".join(lines)


def diagnose(trained: Trained, data: Any = None) -> Diagnosis:
    """Measure a run on its own data (or on the array it was trained on, handed in again) and say what ails it."""
    splits = splits_of(trained, data)
    symptoms = measure_symptoms(trained, splits)
    return Diagnosis(findings(symptoms, trained), symptoms, nothing_measured(trained, splits))


def findings(symptoms: Mapping[str, float], trained: Trained) -> list[Finding]:
    found: dict[str, Finding] = {}
    for ailment in AILMENTS:
        if _present(ailment, symptoms) and not found.keys() & {ailment.name, *ailment.unless}:
            reason = [f"{limit.measure} {symptoms[limit.measure]:.4g}, {limit}" for limit in ailment.limits]
            tries = [text for advice in ailment.tries if (text := advice.text(trained))]
            found[ailment.name] = Finding(ailment.name, ailment.says.format(**symptoms), reason, ailment.origin, tries)
    return list(found.values())


def _applies(ailment: Ailment, symptoms: Mapping[str, float]) -> bool:
    return all(limit.measure in symptoms for limit in ailment.limits) and not symptoms.keys() & ailment.without


def _present(ailment: Ailment, symptoms: Mapping[str, float]) -> bool:
    return _applies(ailment, symptoms) and all(limit.crossed(symptoms[limit.measure]) for limit in ailment.limits)


def _checked(ailment: Ailment, symptoms: Mapping[str, float]) -> str:
    return ", ".join(f"{limit.measure} {symptoms[limit.measure]:.4g} (a sign if {limit})" for limit in ailment.limits)
