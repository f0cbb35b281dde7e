"""Frame modality: probes of game state variables, or geometry if no variables are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.modality import Evaluation, Modality, ViewPair
from nearfar.core.progress import ProgressCallback
from nearfar.data import Tokenizer
from nearfar.data.frames.atari_ram import category_mean, group_by_category
from nearfar.data.frames.dataset import Frames, draw_episodes, split_probe_episodes
from nearfar.data.frames.inputs import FrameInputs
from nearfar.evaluate import Features, ResultTable, compare_features
from nearfar.evaluate.state_variables import (
    MIN_ENTROPY_NATS,
    StateVariableScores,
    evaluate_atari_probes,
    evaluate_converged_probes,
    evaluate_majority_baseline,
    select_informative,
)
from nearfar.modalities.embedding_tables import build_protocol, build_result_row
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.modalities.image import read_duplicate_features
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

STATE_PROBE_NOTES = [
    "F1 in per cent, weighted by value, of {variables} state variables: the mean over categories of the means over their variables. "
    "Each variable has a linear probe, trained by Adam on features as they are until an eighth of the episodes that teach stops it "
    "(AtariARI); converged: logistic regression on standardized features, C = 1{converged}.",
    "{teach:,} frames teach the probes, {test:,} are asked about, of other episodes, and the encoder has seen neither; frames that occur "
    "on both sides are left out of the latter. Left out variables, of an entropy below {least} nats: {dropped}.",
    "Majority class: the value of each variable that is most frequent among those that teach.",
]
NO_VARIABLES_NOTE = "These frames have no labels: there is nothing to predict, only the geometry of the vectors is shown."


class FrameModality(Modality):
    """Frames of games."""

    name = "frames"
    plural = "frames"
    data_help = (
        "Frames of games: 'bounce', a recording (.games) of `nearfar record`, a .npz file with frames and episode, or a folder of "
        "folders of numbered images."
    )
    encoder_help = "Frames: nature, nature-small. auto: nature from 80 pixels per side, nature-small below."
    reveals_copies = True
    candidates = ("st-dim",)
    bundled = ("bounce",)
    extensions = (".games",)

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> FrameInputs:
        return FrameInputs(sizes)

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation:
        splits = load_model_splits(model, data, progress)
        if splits.test is None:
            raise UsageError(f"{splits.train.source} has too few episodes to hold some out: record more frames, or give others with --data")
        rng_key, untrained = RandomKey(model.config.seed)("evaluate"), model.build_untrained()
        teach, test = split_probe_episodes(splits.test, rng_key("episodes"))
        if not len(test):
            raise UsageError(f"{splits.test.source}: every test frame also appears in the training set: nothing to evaluate on")
        before, after = ((who.encode(teach, progress=progress), who.encode(test, progress=progress)) for who in (untrained, model))
        known = None if teach.values is None else select_informative(teach.values, teach.variables)
        if known:
            table = _evaluate_state_variables(
                model, teach, test, known, {"untrained encoder": before, "trained encoder": after}, rng_key("probes")
            )
        else:
            table = _evaluate_geometry(model, before, after, rng_key)
        return Evaluation(table, splits, teach, *after, untrained_features=before[1], test_samples=test)

    def summarize_data(self, train: Frames) -> str:
        episodes = len(set(train.episode.tolist()))
        return f"{len(train):,} training frames of {train.shape[2]} x {train.shape[1]} pixels in {episodes} episodes"

    def build_sample_renderer(self, data: Frames) -> Callable[[Tensor], Tensor]:
        return lambda ids: (data.read(ids.reshape(-1).numpy()).cpu().float() / 255).unflatten(0, ids.shape)

    def render_views(self, model: Model, views: ViewPair) -> tuple[Any, Any]:
        first, second = (view.cpu().float() / 255 for view in views)
        return first, second

    def read_raw_features(self, model: Model, data: Frames, ids: np.ndarray) -> Tensor:
        """Return the pixels of small copies of some frames."""
        return read_duplicate_features(data, ids)

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        return {"model": build_frame_signature(model.net.sizes)}


def _evaluate_state_variables(
    model: Model, teach: Frames, test: Frames, known: list[int], features: dict[str, ViewPair], rng_key: RandomKey
) -> ResultTable:
    assert teach.values is not None
    assert test.values is not None
    names, a, b = tuple(teach.variables[i] for i in known), teach.values[:, known], test.values[:, known]
    apart, most = _mark_validation_frames(teach, rng_key), evaluate_majority_baseline(a, b, names)
    results, converged = [build_result_row("majority class", True, **_summarize_scores(most, most))], True
    for name, pair in features.items():
        x, y = (part.to(model.device) for part in pair)
        exact = evaluate_converged_probes(x, a, y, b, names)
        told = evaluate_atari_probes(x, a, apart, y, b, names, rng_key)
        results.append(build_result_row(name, name != "trained encoder", y, **_summarize_scores(told, exact)))
        converged &= exact.converged
    notes = "\n".join(STATE_PROBE_NOTES).format(
        variables=len(names), teach=len(teach), test=len(test), least=MIN_ENTROPY_NATS, converged="" if converged else ", NOT in all cases",
        dropped=", ".join(v for i, v in enumerate(teach.variables) if i not in known) or "none",
    )  # fmt: skip
    columns = {"f1": "F1", "f1 converged": "converged", **{f"f1 {title}": title for title in group_by_category(names)}}
    return ResultTable(results, build_protocol(model, notes.split("\n"), accuracies=columns))


def _mark_validation_frames(teach: Frames, rng_key: RandomKey) -> np.ndarray:
    """Mark the frames for early stopping of the probes.

    They are an eighth of the episodes. If there is only one episode, they are every eighth frame.
    """
    if len(set(teach.episode.tolist())) < 2:
        return np.arange(len(teach)) % 8 == 0
    return np.isin(teach.episode, draw_episodes(teach, rng_key("apart"), 1 / 8))


def _summarize_scores(told: StateVariableScores, exact: StateVariableScores) -> dict[str, Any]:
    """Return the published score, converged scores, means over categories and scores by variable."""
    by_category = {title: sum(told.f1[name] for name in inside) / len(inside) for title, inside in group_by_category(told.f1).items()}
    return {
        "f1": category_mean(told.f1),
        "f1 converged": category_mean(exact.f1),
        **{f"f1 {title}": mean for title, mean in by_category.items()},
        "accuracy": category_mean(told.accuracy),
        "f1_of": told.f1,
        "f1_converged_of": exact.f1,
    }


def _evaluate_geometry(model: Model, before: ViewPair, after: ViewPair, rng_key: RandomKey) -> ResultTable:
    rows = {"untrained encoder": Features(*before, baseline=True), "trained encoder": Features(*after)}
    table = compare_features(rows, rng_key=rng_key, checkpoint=f"step {model.step} of {model.config.steps}")
    return ResultTable(table.results, table.protocol | build_protocol(model, [NO_VARIABLES_NOTE]))


def build_frame_signature(sizes: Any) -> EncoderSignature:
    """Return the signature of a frame encoder."""
    shape = [sizes[name] for name in ("channels", "height", "width")]
    words = {"input": "frames", "dtype": "uint8", "shape": ["n", *shape], "values": "0 to 255, as they were recorded"}
    pixels = torch.arange(3 * math.prod(shape)) * 37 % 256
    return EncoderSignature("frames", pixels.to(torch.uint8).view(3, *shape), {0: "n"}, None, words)
