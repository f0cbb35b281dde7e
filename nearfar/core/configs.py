"""How a recipe is trained: `Run` decides the numbers, `Machine` only where and how fast they are computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from nearfar.core.errors import UsageError
from nearfar.core.field_checks import POSITIVE, check_fields


@dataclass(frozen=True)
class TrainConfig:
    """Everything besides the recipe's own hyperparameters that the result depends on. Fields are flags of `nearfar fit`."""

    data: str = ""
    """What to learn from. Images: 'digits', a folder of images, CIFAR-10 or MNIST files, or a .npy/.npz of uint8 images. Texts:
    'docstrings', a .txt of one sentence a line, a .csv, .tsv, .jsonl or .parquet, or a folder of such files; questions: such a table
    with question and passage, or SQuAD's .json. Sounds: 'tones', a folder of wav, flac, ogg. Graphs: 'karate', 'atlas', a .npz with
    edge_index, a list of edges, TU's text files; triples: 'python', lines of head, relation, tail with tabs between.
    Images with captions: 'digits-captions', a table with the columns image and caption, Flickr8k's folder. Games: 'bounce', a
    recording (.games) that `nearfar record` made, an .npz with frames and episode, a folder of folders of numbered pictures."""
    encoder: str = "auto"
    """For images: convnet, resnet18, resnet34, resnet50 (convnet-gn etc.: group instead of batch norm; resnet18-imagenet etc.: ImageNet
    stem); auto: convnet up to 40 pixels, resnet18 above. For texts: bert-tiny, bert-mini, bert-small, bert-medium, bert-base (random
    weights), gru, bag; auto: bert-tiny. For sounds: mel, mel-deep, mel-transformer, wave, wave-512; auto: mel. For these three also
    hf:NAME-OR-FOLDER, a model of transformers. For graphs: gcn-1x512, gin-3x32, gin-3x32-ln (layers x width); auto: gcn-1x512 for
    nodes, gin-3x32 for whole graphs. For frames of games: nature, nature-small; auto: nature from 80 pixels a side on. Words, walks
    and triples learn a table: auto."""
    image_size: int | None = None
    """Images are scaled and cropped to this many pixels a side. Default: their own size if all agree, else 64."""
    sample_rate: int | None = None
    """Sounds are resampled to this many samples a second. Default: their own rate, at most 16,000."""
    seconds: float | None = None
    """Sounds are cut or filled up with silence to this length. Default: 95 in 100 of them fit in whole."""
    columns: str | None = None
    """Which columns of a table are texts, in order, as in anchor,positive,negative; label=NAME and score=NAME name those. Of images with
    captions: image,caption."""
    tokenizer: str = "auto"
    """NAME-OR-FOLDER of a tokenizer of transformers; auto: that of --init-from or of an hf: encoder, else one trained on the training texts."""
    vocab_size: int = 8192
    """Tokens of a tokenizer that is trained."""
    min_count: int = 5
    """Words of a corpus that occur less often are left out."""
    max_length: int = 64
    """Texts are cut off after this many tokens."""
    batch_size: int | None = None
    """Samples a step. Default: 256, or the largest power of two that the data allow."""
    steps: int | None = None
    """Length of the training in optimizer steps; 0 for methods that are fitted in closed form."""
    epochs: float | None = None
    """Length of the training in passes over the data; default 100 if neither this nor --steps is given."""
    optimizer: Literal["adamw", "sgd", "lars", "adagrad"] = "adamw"
    """The update rule; LARS does not adapt the rate of biases, norms and other one-dimensional parameters. adagrad: one rate for each
    row, without decay, for tables of words."""
    lr: float = 2e-3
    """Learning rate at its peak, for the whole batch (no hidden scaling)."""
    weight_decay: float = 1e-4
    """Decay of weights (decoupled in AdamW)."""
    decay_params: Literal["matrices", "all"] = "matrices"
    """What decays: matrices and kernels alone, or biases, norms and other one-dimensional parameters too, as in many plain scripts."""
    momentum: float = 0.9
    """Momentum of SGD and LARS."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Course of the learning rate after the warm-up."""
    warmup_ratio: float = 0.1
    """Share of the training during which the learning rate rises linearly."""
    grad_clip: float | None = None
    """Largest norm of the whole gradient."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: embeddings are computed under autocast; losses always see fp32."""
    seed: int = 0
    """Names every random number of the run: order, views, initialisation, split."""
    init_from: str | None = None
    """A finished run whose encoder this one starts from."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do about a file, a row or a line that cannot be read: stop and name it, or leave it out and count it."""

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
    """Where and how a run is computed. On one machine none of these changes the result beyond rounding, but for --chunk-size with
    batch normalisation or dropout."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    deterministic: bool = False
    """Only algorithms that give the same bits every time (always so on CPU; slower on CUDA)."""
    chunk_size: int | None = None
    """Embed at most this many rows at a time: batches larger than memory, one more forward pass, the same gradients for nets without
    batch normalisation (--encoder convnet-gn, --norm layer) and dropout, whose masks are drawn chunk by chunk."""
    num_workers: int = 0
    """Processes that read samples ahead; useful for files that do not fit into memory."""
    compile: bool = False
    """Compile convolutional encoders with torch.compile: a minute at the start, faster steps; without a compiler they run as they are."""
    cuda_graph: bool = True
    """On CUDA, record a step and replay it, where that gives the same (not with --deterministic): the host is no bottleneck then."""
    eval_every: int | None = None
    """Evaluate on the test split every so many steps, if there are labels."""
    save_every: int | None = None
    """Write a checkpoint every so many steps. Default: twenty times a run, and at the end."""
    log_every: int = 10
    """Write a line of metrics every so many steps."""

    def __post_init__(self):
        positive = dict.fromkeys(("chunk_size", "eval_every", "save_every", "log_every"), (1.0, math.inf))
        check_fields(self, positive | {"num_workers": (0.0, math.inf)})


def get_field_names(config_class: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(config_class))
