"""Frames of games are measured by what their vectors tell of the game's memory, if that is known; else only their geometry can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.api.evaluate import splits_of
from nearfar.core import Key, UsageError
from nearfar.data.frames.atari_ram import categories, category_mean
from nearfar.data.frames.dataset import Frames, held_out, teach_and_test
from nearfar.evaluate import Features, Table, compare
from nearfar.evaluate.state_variables import LEAST_ENTROPY, Told, informative, told_as_published, told_by_majority, told_by_probes
from nearfar.modalities.interface import Evaluation, Kind, Pair, Progress
from nearfar.modalities.named_rows import protocol, row
from nearfar.train.model import Trained

NOTES = [
    "F1 in per cent, weighted by value, of {variables} state variables: the mean over categories of the means over their variables. "
    "Each variable has a linear probe, trained by Adam on features as they are until an eighth of the episodes that teach stops it "
    "(AtariARI); converged: logistic regression on standardised features, C = 1{converged}.",
    "{teach:,} frames teach the probes, {test:,} are asked about, of other episodes, and the encoder has seen neither; frames that occur "
    "on both sides are left out of the latter. Left out variables, of an entropy below {least} nats: {dropped}.",
    "Majority class: the value of each variable that is most frequent among those that teach.",
]
NO_VARIABLES = "Nothing is known of these frames but their pixels: there is nothing to predict, only the geometry of the vectors is shown."


class FrameKind(Kind):
    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation:
        splits = splits_of(trained, data, progress)
        if splits.test is None:
            raise UsageError(f"{splits.train.source} has too few episodes to hold some out: record more frames, or give others with --data")
        key, untrained = Key(trained.run.seed)("evaluate"), trained.untrained()
        teach, test = teach_and_test(splits.test, key("episodes"))
        if not len(test):
            raise UsageError(f"{splits.test.source}: every frame for testing occurs among those that teach: nothing to evaluate on")
        before, after = ((who.encode(teach, progress=progress), who.encode(test, progress=progress)) for who in (untrained, trained))
        known = None if teach.values is None else informative(teach.values, teach.variables)
        if known:
            table = _told(trained, teach, test, known, {"untrained encoder": before, "trained encoder": after}, key("probes"))
        else:
            table = _geometry(trained, before, after, key)
        return Evaluation(table, splits, teach, *after, untrained=before[1], asked=test)

    def summary(self, train: Frames) -> str:
        episodes = len(set(train.episode.tolist()))
        return f"{len(train):,} training frames of {train.shape[2]} x {train.shape[1]} pixels in {episodes} episodes"

    def shown(self, data: Frames) -> Callable[[Tensor], Tensor]:
        return lambda ids: (data.read(ids.reshape(-1).numpy()).cpu().float() / 255).unflatten(0, ids.shape)

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[Any, Any]:
        first, second = (view.cpu().float() / 255 for view in views)
        return first, second


def _told(trained: Trained, teach: Frames, test: Frames, known: list[int], features: dict[str, Pair], key: Key) -> Table:
    assert teach.values is not None
    assert test.values is not None
    names, a, b = tuple(teach.variables[i] for i in known), teach.values[:, known], test.values[:, known]
    apart, most = _apart(teach, key), told_by_majority(a, b, names)
    results, converged = [row("majority class", True, **_measured(most, most))], True
    for name, pair in features.items():
        x, y = (part.to(trained.device) for part in pair)
        exact = told_by_probes(x, a, y, b, names)
        told = told_as_published(x, a, apart, y, b, names, key)
        results.append(row(name, name != "trained encoder", y, **_measured(told, exact)))
        converged &= exact.converged
    notes = "\n".join(NOTES).format(
        variables=len(names), teach=len(teach), test=len(test), least=LEAST_ENTROPY, converged="" if converged else ", NOT in all cases",
        dropped=", ".join(v for i, v in enumerate(teach.variables) if i not in known) or "none",
    )  # fmt: skip
    columns = {"f1": "F1", "f1 converged": "converged", **{f"f1 {title}": title for title in categories(names)}}
    return Table(results, protocol(trained, notes.split("\n"), accuracies=columns))


def _apart(teach: Frames, key: Key) -> np.ndarray:
    """The frames that stop the probes: an eighth of the episodes; of a single episode every eighth frame."""
    if len(set(teach.episode.tolist())) < 2:
        return np.arange(len(teach)) % 8 == 0
    return np.isin(teach.episode, held_out(teach, key("apart"), 1 / 8))


def _measured(told: Told, exact: Told) -> dict[str, Any]:
    """The published score and that of converged probes, the means over categories, and every variable by itself."""
    by_category = {title: sum(told.f1[name] for name in inside) / len(inside) for title, inside in categories(told.f1).items()}
    return {
        "f1": category_mean(told.f1),
        "f1 converged": category_mean(exact.f1),
        **{f"f1 {title}": mean for title, mean in by_category.items()},
        "accuracy": category_mean(told.accuracy),
        "f1_of": told.f1,
        "f1_converged_of": exact.f1,
    }


def _geometry(trained: Trained, before: Pair, after: Pair, key: Key) -> Table:
    rows = {"untrained encoder": Features(*before, baseline=True), "trained encoder": Features(*after)}
    table = compare(rows, key=key, checkpoint=f"step {trained.step} of {trained.run.steps}")
    return Table(table.results, table.protocol | protocol(trained, [NO_VARIABLES]))
