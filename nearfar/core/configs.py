"""Configuration of a training run.

`TrainConfig` determines the result. `RuntimeConfig` determines only where and how fast the result is
computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from nearfar.core.errors import UsageError
from nearfar.core.field_checks import POSITIVE, check_fields


@dataclass(frozen=True)
class TrainConfig:
    """Training settings that determine the result, apart from the recipe's hyperparameters.

    Fields are flags of `nearfar fit`.
    """

    data: str = ""
    """Dataset to train on: the name of a bundled dataset, a file or a folder."""
    encoder: str = "auto"
    """Encoder network, or auto for one that suits the data."""
    image_size: int | None = None
    """Image size in pixels per side, by scaling and cropping. Default: the size of the images if all agree,
    else 64."""
    sample_rate: int | None = None
    """Sample rate of sounds after resampling, in Hz. Default: the rate of the files, at most 16,000."""
    seconds: float | None = None
    """Length of sounds in seconds, by cutting or padding with silence. Default: the length that 95 % of them
    fit into."""
    columns: str | None = None
    """Columns of a table, in order: texts, for example anchor,positive,negative, or features of rows of
    numbers. label=NAME and score=NAME name the columns of labels and scores. Images with captions:
    image,caption."""
    tokenizer: str = "auto"
    """NAME-OR-FOLDER of a transformers tokenizer, or auto. auto: the tokenizer of --init-from or of an hf:
    encoder, else a tokenizer trained on the training texts."""
    vocab_size: int = 8192
    """Vocabulary size of a trained tokenizer."""
    min_count: int = 5
    """Minimum count of a word in the corpus; rarer words are left out."""
    max_length: int = 64
    """Maximum length of a text in tokens; longer texts are truncated."""
    batch_size: int | None = None
    """Batch size: samples per step. Default: 256, or the largest power of two that the data allow."""
    steps: int | None = None
    """Training length in optimizer steps; 0 for methods that are fitted in closed form."""
    epochs: float | None = None
    """Training length in passes over the data. Default: 100 if neither --epochs nor --steps is given."""
    optimizer: Literal["adamw", "sgd", "lars", "adagrad"] = "adamw"
    """Optimizer. lars does not adapt the rate of biases, norms and other one-dimensional parameters. adagrad
    uses one rate per row, without weight decay, for word tables."""
    lr: float = 2e-3
    """Peak learning rate, for the whole batch (no hidden scaling)."""
    weight_decay: float = 1e-4
    """Weight decay (decoupled in AdamW)."""
    decay_params: Literal["matrices", "all"] = "matrices"
    """Parameters with weight decay. matrices: only matrices and kernels. all: also biases, norms and other
    one-dimensional parameters, as in many plain scripts."""
    momentum: float = 0.9
    """Momentum of SGD and LARS."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate schedule after the warm-up."""
    warmup_ratio: float = 0.1
    """Share of the training with a linear learning rate warm-up."""
    grad_clip: float | None = None
    """Maximum norm of the whole gradient."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the embeddings. bf16: compute embeddings under autocast; losses always get fp32."""
    seed: int = 0
    """Random seed. Determines order, views, initialization and split."""
    init_from: str | None = None
    """Finished run whose encoder is the starting point."""
    on_error: Literal["stop", "skip"] = "stop"
    """Action for an unreadable file, row or line. stop: stop and name it. skip: leave it out and count it."""

    def __post_init__(self):
        limits = dict.fromkeys(("batch_size", "image_size", "sample_rate", "vocab_size", "max_length", "min_count"), (1.0, math.inf))
        limits |= dict.fromkeys(("epochs", "lr", "grad_clip", "seconds"), POSITIVE)
        limits |= dict.fromkeys(("steps", "weight_decay", "seed"), (0.0, math.inf))
        limits |= {"momentum": (0.0, 1.0), "warmup_ratio": (0.0, 0.99)}
        check_fields(self, limits)
        if self.steps is not None and self.epochs is not None:
            raise UsageError("give --steps or --epochs, not both")


@dataclass(frozen=True)
class RuntimeConfig:
    """Runtime settings: where and how a run is computed.

    On one machine, none of these settings changes the result beyond rounding. The exception is --chunk-size
    with batch normalization or dropout.
    """

    device: str = "auto"
    """Device: auto, cpu, cuda or cuda:N."""
    deterministic: bool = False
    """Use only deterministic algorithms (always the case on CPU; slower on CUDA)."""
    chunk_size: int | None = None
    """Maximum number of rows to embed at a time. Allows batches larger than memory; costs one more forward
    pass. Gradients are the same for nets without batch normalization (--encoder convnet-gn, --norm layer) and
    without dropout, which draws its masks chunk by chunk."""
    num_workers: int = 0
    """Number of worker processes that read samples ahead. Useful for files that do not fit into memory."""
    compile: bool = False
    """Compile convolutional encoders with torch.compile. Takes a minute at the start and makes steps faster.
    Without a compiler, encoders run uncompiled."""
    cuda_graph: bool = True
    """Record a step as a CUDA graph and replay it, where the result is the same. Removes the host as a
    bottleneck. Not used with --deterministic."""
    eval_every: int | None = None
    """Steps between evaluations on the test split, if there are labels."""
    save_every: int | None = None
    """Steps between checkpoints. Default: twenty checkpoints per run, and one at the end."""
    log_every: int = 10
    """Steps between lines of metrics."""

    def __post_init__(self):
        positive = dict.fromkeys(("chunk_size", "eval_every", "save_every", "log_every"), (1.0, math.inf))
        check_fields(self, positive | {"num_workers": (0.0, math.inf)})


def get_field_names(config_class: type) -> tuple[str, ...]:
    """Return the names of the fields of a config class."""
    return tuple(f.name for f in fields(config_class))
