"""Modality: the object that knows everything specific to one kind of data.

    modality = model.modality                        or find_modality("image") of nearfar.modalities
    modality.build_inputs().load_splits(...)         open data
    modality.compute_baselines(train, test, views)   baselines of an evaluation
    modality.encode_sample_png(part, i)              thumbnail of a sample

Each file of `nearfar/modalities` defines one modality. All other code asks this object and never compares
names of modalities.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.core.random_key import RandomKey

ViewPair = tuple[Tensor, Tensor]
"""Two views of the same samples, row by row."""
MODALITY_SETTINGS = ("image_size", "sample_rate", "seconds", "columns", "tokenizer", "vocab_size", "min_count", "max_length")
"""Settings of `TrainConfig` that apply to some modalities and have no effect on others."""
RECOGNIZED_FILES = 100
"""Number of files of a folder that `recognizes` looks at."""


@dataclass(frozen=True)
class SampleMedia:
    """Media of a modality's samples in the explorer."""

    picture: bool = False
    """True if a sample has a picture."""
    sound: bool = False
    """True if a sample can be played."""
    quote: bool = False
    """True if a sample is shown as its quoted name."""
    difference: str | None = None
    """Note below the picture of the difference of two samples. None if there is no such picture."""


@dataclass(frozen=True)
class Evaluation:
    """Result table and its features, for maps and neighbors."""

    table: Any
    """`ResultTable` of the evaluation."""
    splits: Any
    """`Splits` of the data."""
    train_samples: Any
    """Training samples of the features: all, or as many as the modality allows."""
    train_features: Tensor
    test_features: Tensor
    untrained_features: Tensor
    test_samples: Any = None
    """Samples of `test_features` and `untrained_features`, if they are not the test split."""
    features: Mapping[str, Any] = field(default_factory=dict)
    """`Features` of each representation by name. Empty if the modality has an evaluation of its own."""

    @property
    def test_labels(self) -> Any:
        """Labels of the test samples, or None."""
        samples = self.splits.test if self.test_samples is None else self.test_samples
        return getattr(samples, "labels", None)


class Modality(ABC):
    """One kind of data.

    Class attributes are literals, so that `--help` can read them without importing the file.
    """

    name: ClassVar[str]
    """Name in cards and messages. The file has the same name, with an underscore for each hyphen."""
    plural: ClassVar[str]
    """Noun for several samples, such as "images"."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Names in `MODALITY_SETTINGS` that apply to this modality."""
    data_help: ClassVar[str] = ""
    """Data that `--data` opens, for the help of `nearfar fit`."""
    encoder_help: ClassVar[str] = ""
    """Encoders that `--encoder` names, for the help of `nearfar fit`."""
    candidates: ClassVar[tuple[str, ...]] = ()
    """Methods that `nearfar choose` tries by default. They need nothing but the samples."""
    bundled: ClassVar[tuple[str, ...]] = ()
    """Names of datasets that come with the package."""
    extensions: ClassVar[tuple[str, ...]] = ()
    """File extensions that reveal the modality."""
    recognition_order: ClassVar[int] = 1
    """Among the modalities that recognize some data, `nearfar choose` takes the one with the smallest number."""
    media: ClassVar[SampleMedia] = SampleMedia()
    """Media of a sample in the explorer."""
    input_types: ClassVar[tuple[str, ...]] = ()
    """Fields of a server request that a model can encode: "texts", "images" or "sounds"."""
    pipeline_tag: ClassVar[str] = "feature-extraction"
    """Hugging Face's tag for models of this modality."""
    code_example: ClassVar[str] = "samples"
    """Argument of `Model.encode` in the code example of a model card."""
    rowwise_encoder: ClassVar[str | None] = None
    """Encoder without batch statistics, which encodes every row independently. None: every encoder does."""

    # Opening data

    def check_settings(self, settings: Mapping[str, Any], method: str) -> None:
        """Raise `UsageError` if a given setting has no effect on this modality.

        Args:
            settings: Settings by name; None means not given.
            method: Name of the method, for the error message.
        """
        for name in MODALITY_SETTINGS:
            if settings.get(name) is not None and name not in self.settings:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} has no effect on the modality {self.name!r} of {method}: leave it out")

    @abstractmethod
    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Any = None) -> Any:
        """Build the `Inputs` that open data.

        Args:
            sizes: Sizes of a trained model to which data are adapted. None opens data for training.
            tokenizer: Tokenizer of the trained model, if it has one.
        """

    def recognizes(self, data: Any) -> bool:
        """Return True if the data look like this modality.

        The name, the file extension or the content of a folder decides.
        """
        if not isinstance(data, (str, os.PathLike)):
            return False
        path = Path(os.path.expanduser(data))
        if str(data) in self.bundled:
            return True
        if not path.is_dir():
            return path.name.lower().endswith(self.extensions or "/")
        files = list(islice((file for file in path.rglob("*") if file.is_file()), RECOGNIZED_FILES))
        return 2 * sum(file.name.lower().endswith(self.extensions or "/") for file in files) > len(files)

    # Evaluation and report

    def evaluate(self, model: Any, data: Any, progress: ProgressCallback | None) -> Evaluation | None:
        """Return the modality's own evaluation, or None for the standard probes.

        `data` are the data that the user named. None means the data of the run.
        """
        return None

    def has_own_evaluation(self, model: Any) -> bool:
        """Return True if `evaluate` has an evaluation for this run."""
        return type(self).evaluate is not Modality.evaluate

    def select_train_samples(self, train: Any, rng_key: RandomKey) -> Any:
        """Return the training samples for probes and neighbors."""
        return train

    def explain_skipped_probes(self, train: Any) -> str:
        """Return the reason why labels cannot be predicted from vectors.

        The result is empty if labels can be predicted. Probes are skipped if a label does not describe the encoded unit.
        """
        return ""

    def compute_baselines(self, train: Any, test: Any, views: ViewPair | None) -> dict[str, Any]:
        """Compute `Features` without learning, as baselines of the standard probes."""
        return {}

    def encode_views(self, model: Any, views: ViewPair) -> ViewPair:
        """Return the representations of two views."""
        return encode_view(model, views[0]), encode_view(model, views[1])

    @abstractmethod
    def summarize_data(self, train: Any) -> str:
        """Describe the training data in a few words."""

    @abstractmethod
    def build_sample_renderer(self, data: Any) -> Callable[[Tensor], Any]:
        """Return a function that renders samples for a report, given their ids of any shape."""

    def render_views(self, model: Any, views: ViewPair) -> tuple[Any, Any]:
        """Render two views for a report."""
        return views

    # Ranking and diagnosis without labels

    def encode_ranking_views(self, model: Any, samples: Any, rng_key: RandomKey) -> ViewPair | None:
        """Return the representations of two views of each sample that are comparable for all methods.

        None means: the views of the method itself are compared.
        """
        return None

    ranking_measure: ClassVar[str] = ""
    """Name of the measure of `score_without_labels`. Empty: methods are ranked by alignment and effective rank."""

    def score_without_labels(self, model: Any, splits: Any, rng_key: RandomKey) -> float:
        """Return a score of a trained model that needs no labels. A larger score is better.

        `nearfar choose` ranks methods by it if `ranking_measure` names it.
        """
        raise NotImplementedError(f"{self.name} has no ranking_measure")

    def draw_samples(self, data: Any, count: int, rng_key: RandomKey) -> Any:
        """Draw at most `count` samples that `Model.encode` takes, in their order."""
        return data.subset(np.sort(rng_key.permutation(len(data))[:count]))

    reveals_copies: ClassVar[bool] = False
    """True if `read_raw_features` is defined: copies and near copies of samples can be found."""

    def read_raw_features(self, model: Any, data: Any, ids: np.ndarray) -> Tensor:
        """Return raw features of some samples, (n, f).

        Copies and near copies of a sample have equal or near features.
        """
        raise NotImplementedError(f"{self.name} has no raw features")

    # Index, server and explorer

    def parse_query(self, model: Any, query: str) -> Any:
        """Convert a user's search query to samples for `Model.encode`.

        Raises:
            UsageError: if the query cannot be a sample of this modality.
        """
        raise UsageError(f"there is no file {query!r}: this index is searched with a file, with row:N, or with vectors (-)")

    def reads_query_files(self) -> bool:
        """Return True if a query may be the path of a file."""
        return True

    def encode_sample_png(self, part: Any, i: int) -> bytes | None:
        """Return the thumbnail of a sample as a PNG file, or None."""
        return None

    def encode_sample_wav(self, part: Any, i: int) -> bytes | None:
        """Return a sample as a WAV file, or None."""
        return None

    def encode_file_png(self, path: str) -> bytes | None:
        """Return the thumbnail of a sample's file as a PNG file, or None."""
        return None

    def encode_file_wav(self, path: str) -> bytes | None:
        """Return a sample's file as a WAV file, or None."""
        return None

    # Export

    def build_signatures(self, model: Any) -> dict[str, Any]:
        """Return the `EncoderSignature` of each encoder of a run, by output file name.

        Raises:
            UsageError: if encoders of this modality cannot be exported.
        """
        raise UsageError(f"encoders of {self.plural} cannot be exported: those of images, texts, words, sounds and frames can")


FindModality = Callable[[str], Modality]
"""Function that returns the modality of a name, such as `nearfar.modalities.find_modality`."""


@torch.no_grad()
def encode_view(model: Any, view: Tensor, dropout: bool = False) -> Tensor:
    """Return the representations of one view in fp32 on the CPU, (n, d)."""
    model.net.train(dropout)
    try:
        return model.recipe.encode(model.net, view.to(model.device)).float().cpu()
    finally:
        model.net.eval()
