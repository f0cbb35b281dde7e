"""Micro presets: recipes with narrow layers on a few dozen samples, for tests of every recipe.

A micro preset is the tiny preset of a recipe with smaller numbers. The method stays the same. Hyperparameters
are reduced by name, so a new recipe needs no entry here, unless it is listed in `EXCEPTIONS`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from helpers import exactly
from torch import Tensor

from nearfar import recipes
from nearfar.core import Recipe, RuntimeConfig, TrainConfig
from nearfar.data import Splits
from nearfar.data.audio.dataset import Sounds, SoundStore, quantize_waveform
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.frames.dataset import Frames
from nearfar.data.image_text.readers import DIGIT_NAMES
from nearfar.data.text.dataset import Texts, TextStore
from nearfar.modalities import find_modality
from nearfar.train.session import TrainingSession

BATCH_SIZE = 8
NUM_SAMPLES, NUM_CLASSES = 40, 4
"""Samples of a micro dataset. One in five is for testing, so that an epoch has four steps."""
SIZES = {
    "background_neighbors": 12, "clusters": 4, "codebook_size": 8, "consecutive_sentences": 4, "depth": 1, "dim": 16,
    "hardest_keys": 8, "hidden_dim": 16, "labels_per_class": 8, "mixed_negatives": 4, "negative_pool_size": 8, "negatives": 4,
    "pca_dim": 8, "prototypes": 8, "query_mixed_negatives": 4, "queue_size": 32, "shared_negatives": 4, "walk_length": 8,
    "window": 3, "words_per_row": 16,
}  # fmt: skip
"""Largest micro value of a hyperparameter, by name. Smaller values of a tiny preset stay. A queue holds four batches."""
START_EPOCHS = ("aggregate_from_epoch", "cluster_from_epoch")
"""Hyperparameters with the first epoch of a part of the loss: epoch 1, so that a few steps reach it."""
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "deepcluster": {"cluster_every": 2},  # eight steps: some to learn a clustering, and few enough to cluster again
    "pcl": {"clusters": (3, 5)},  # several scales
    "w-mse": {"dim": 4, "sub_batch_size": 8},  # whitening needs sub-batches of more rows than dimensions
}
"""Hyperparameters of recipes for which the numbers by name do not suffice."""
ENCODERS = {"gcn-1x64": "gcn-1x16", "gin-3x16": "gin-1x16", "gin-3x16-ln": "gin-1x16-ln", "mlp": "mlp-2x16"}
"""Narrower encoders of the same type. The other encoders of tiny presets have one width only."""
DATA_SETTINGS = {"max_length": 24, "min_count": 1, "vocab_size": 320}
"""Largest micro value of a data setting. A byte-level vocabulary has 261 tokens before the first merge."""


@functools.cache
def micro_preset(name: str) -> tuple[Recipe, TrainConfig]:
    """Return the micro preset of a method: its recipe and its train config."""
    recipe, config = recipes.load_method(name).tiny
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if field.name in START_EPOCHS:
            changes[field.name] = min(value, 1)
        elif field.name in SIZES and isinstance(value, int):
            changes[field.name] = min(value, SIZES[field.name])
    recipe = dataclasses.replace(recipe, **changes | EXCEPTIONS.get(name, {}))
    settings = find_modality(recipe.card.modality).settings
    config = dataclasses.replace(
        config,
        encoder=ENCODERS.get(config.encoder, config.encoder),
        batch_size=min(config.batch_size or BATCH_SIZE, BATCH_SIZE),
        **{key: min(getattr(config, key), size) for key, size in DATA_SETTINGS.items() if key in settings},
    )
    return recipe, config


def micro_settings(name: str, **changes: Any) -> dict[str, Any]:
    """Return the arguments with which `nearfar.fit` trains the micro preset."""
    recipe, config = micro_preset(name)
    chosen = {key: value for key, value in dataclasses.asdict(config).items() if value != getattr(TrainConfig(), key)}
    return chosen | {"recipe": recipe, "data": micro_data(name)} | changes


def micro_data(name: str) -> Any:
    """Return data for `nearfar.fit`: the micro version of the bundled dataset, or the name of one that is small anyway."""
    recipe, config = micro_preset(name)
    if recipe.card.modality == "words":
        return make_sentences()
    return DATASETS[config.data]() if config.data in DATASETS else config.data


@functools.cache
def micro_splits(name: str) -> Splits:
    """Return the micro data of a method, opened once per process."""
    recipe, config = micro_preset(name)
    return find_modality(recipe.card.modality).build_inputs().load_splits(micro_data(name), config)


def micro_session(
    name: str, exact: bool = False, runtime: RuntimeConfig | None = None, splits: Splits | None = None, **changes: Any
) -> TrainingSession:
    """Build a session of the micro preset.

    Args:
        name: name of the method.
        exact: without batch statistics and dropout, so that chunks and ranks give the same gradient.
        runtime: runtime settings.
        splits: the opened micro data, for processes that did not open them.
        changes: other hyperparameters or train settings, by name.
    """
    recipe, config = micro_preset(name)
    if exact:
        encoder = find_modality(recipe.card.modality).rowwise_encoder or config.encoder
        config = dataclasses.replace(config, encoder=ENCODERS.get(encoder, encoder))
        recipe = exactly(recipe)
    given = {key: value for key, value in changes.items() if hasattr(recipe, key)}
    recipe = dataclasses.replace(recipe, **given)
    config = dataclasses.replace(config, **{key: value for key, value in changes.items() if key not in given})
    train = (splits or micro_splits(name)).train
    data = train if recipe.uses_labels else train.drop_labels()
    return TrainingSession(recipe, config, runtime or RuntimeConfig(), data, torch.device("cpu"))


@functools.cache
def make_images() -> tuple[Tensor, np.ndarray]:
    """Return ten handwritten digits of each of four classes, in turn."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = [np.flatnonzero(digits.target == label)[: NUM_SAMPLES // NUM_CLASSES] for label in range(NUM_CLASSES)]
    ids = np.stack(chosen, axis=1).ravel()
    return torch.from_numpy((digits.images[ids] * 255 / 16).astype(np.uint8)), digits.target[ids].astype(np.int64)


@functools.cache
def make_captioned_images() -> tuple[Tensor, list[str]]:
    images, labels = make_images()
    return images, [f"the digit {DIGIT_NAMES[label]}, number {i}" for i, label in enumerate(labels)]


@functools.cache
def make_rows() -> tuple[np.ndarray, np.ndarray]:
    images, labels = make_images()
    return images.flatten(1).float().numpy(), labels


@functools.cache
def make_clips() -> Sounds:
    """Make clips of half a second at 8,000 Hz: four notes each, labeled by the first note."""
    generator, seconds = torch.Generator().manual_seed(0), torch.arange(4096) / 8000
    notes = torch.randint(NUM_CLASSES, (NUM_SAMPLES, 4), generator=generator)
    pitch = (200 * 1.5**notes).repeat_interleave(len(seconds) // 4, dim=1)
    wave = sum(torch.sin(6.28 * overtone * pitch * seconds) / overtone for overtone in (1, 2, 3))
    noise = torch.rand(wave.shape, generator=generator) - 0.5
    store = SoundStore(torch.from_numpy(quantize_waveform((0.3 * wave + 0.01 * noise).numpy())), 8000)
    return Sounds(store, np.arange(NUM_SAMPLES), notes[:, 0].numpy(), tuple("abcd"), "notes")


@functools.cache
def make_frames() -> Frames:
    """Make five episodes of eight frames with a moving square."""
    pixels = torch.zeros(NUM_SAMPLES, 1, 24, 24, dtype=torch.uint8)
    for i in range(NUM_SAMPLES):
        left, top = 2 * (i % 8) + i // 8, 3 * (i // 8)
        pixels[i, 0, top : top + 6, left : left + 6] = 200
    return Frames(InMemoryImageStore(pixels), np.arange(NUM_SAMPLES), source="squares", episode=np.arange(NUM_SAMPLES) // 8)


def micro_samples(name: str, n: int = 5) -> Any:
    """Return new samples for a trained micro net to encode."""
    modality = recipes.load_method(name).recipe_class.card.modality
    if modality == "words":
        return ["the", "file", "is", "an", "object"][:n]
    if modality == "triples":
        return [f"part {i}" for i in range(n)]
    if modality == "walks":
        return [str(i) for i in range(n)]
    if modality == "text":
        return [f"The number {i} comes before the number {i + 1}." for i in range(n)]
    if modality == "frames":
        return torch.arange(n * 24 * 24).view(n, 24, 24).remainder(251).to(torch.uint8)
    if modality == "audio":
        return torch.sin(torch.arange(1, n + 1)[:, None] * torch.arange(4096) / 20) / 2
    if modality == "table":
        return torch.arange(n * 64).view(n, 64).remainder(17).float()
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    if modality == "nodes":
        return {"x": torch.eye(34)[:n], "edge_index": ring}
    if modality == "graphs":
        return [{"edge_index": ring[:, : i + 1]} for i in range(n)]
    return torch.arange(n * 64, dtype=torch.uint8).view(n, 8, 8)


SUBJECTS = ("the file", "an object", "every number", "the first line", "a class")
VERBS = ("is", "returns", "follows", "contains")
OBJECTS = ("an object", "the next number", "a file", "the end of a line", "one class")


@functools.cache
def make_sentences() -> list[str]:
    """Make 40 different sentences of few words."""
    return [f"{SUBJECTS[i % 5]} {VERBS[i // 5 % 4]} {OBJECTS[(i + i // 20) % 5]}." for i in range(NUM_SAMPLES)]


@functools.cache
def make_documents() -> Texts:
    """Make five documents of eight sentences."""
    store = TextStore({"text": make_sentences()}, document_ids=np.arange(NUM_SAMPLES) // 8)
    return Texts(store, np.arange(NUM_SAMPLES), source="sentences")


@functools.cache
def make_sentence_triples() -> Texts:
    said = make_sentences()
    columns = {"anchor": said, "positive": [f"{text[:-1]}, too." for text in said], "negative": said[1:] + said[:1]}
    return Texts(TextStore(columns), np.arange(NUM_SAMPLES), source="triples")


@functools.cache
def make_sentence_pairs() -> Texts:
    """Make sentence pairs: every second pair shares its subject."""
    said, same = make_sentences(), np.arange(NUM_SAMPLES) % 2
    second = [said[(i + (5 if same[i] else 1)) % NUM_SAMPLES] for i in range(NUM_SAMPLES)]
    store = TextStore({"sentence1": said, "sentence2": second})
    return Texts(store, np.arange(NUM_SAMPLES), same, ("other", "same"), "pairs", scores=same.astype(np.float32))


@functools.cache
def make_questions() -> Texts:
    """Make questions, passages of two parts, answers in them, and passages that do not answer."""
    answers = [f"{OBJECTS[i // 5 % 5]} {i}" for i in range(NUM_SAMPLES)]
    passages = [f"{SUBJECTS[i % 5]} {VERBS[i % 4]} {answer}" for i, answer in enumerate(answers)]
    columns = {
        "passage": passages,
        "question": [f"{SUBJECTS[i % 5]} {i}?" for i in range(NUM_SAMPLES)],
        "answer": answers,
        "negative": passages[3:] + passages[:3],
    }
    return Texts(TextStore(columns), np.arange(NUM_SAMPLES), source="questions")


@functools.cache
def make_graphs() -> list[dict[str, Any]]:
    """Make rings, paths, stars and cliques of three to seven nodes, labeled by kind."""
    graphs = []
    for i in range(NUM_SAMPLES):
        n = 3 + i // NUM_CLASSES % 5
        nodes = torch.arange(n)
        kinds = (
            torch.stack([nodes, (nodes + 1) % n]),
            torch.stack([nodes[:-1], nodes[1:]]),
            torch.stack([torch.zeros(n - 1, dtype=torch.long), nodes[1:]]),
            torch.combinations(nodes).T,
        )
        graphs.append({"edge_index": kinds[i % NUM_CLASSES], "num_nodes": n, "y": i % NUM_CLASSES})
    return graphs


@functools.cache
def make_triples() -> list[tuple[str, str, str]]:
    """Make the triples of nested intervals and their ends."""
    inside = [(f"part {i}", "inside", f"part {i // 3}") for i in range(1, 24)]
    return inside + [(f"part {i}", "before", f"part {i + 1}") for i in range(23)]


DATASETS: dict[str, Callable[[], Any]] = {
    "bounce": make_frames,
    "digits": make_images,
    "digits-captions": make_captioned_images,
    "digits-table": make_rows,
    "docstring-pairs": make_sentence_pairs,
    "docstring-questions": make_questions,
    "docstring-triples": make_sentence_triples,
    "docstrings": make_documents,
    "python": make_triples,
    "tones": make_clips,
    "atlas": make_graphs,
}
"""Micro versions of bundled datasets, by the name in a tiny preset. "karate" needs none: it is one graph of 34 nodes."""
