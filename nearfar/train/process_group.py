"""Process group of ranks that torchrun started.

This module joins the group, selects the device of this rank, compares the ranks at the start and decides
which rank reports an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from nearfar.core import NearfarError, Net, UsageError
from nearfar.core.ranks import gather_from_ranks, get_message_device, get_world_size, is_set_on_any_rank

TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
RANK_TIMEOUT = timedelta(days=7)
"""Maximum time that ranks wait for one another. Rank 0 evaluates and saves while the others wait, which
may take long. A rank that ends is noticed at once, by its closed connections and by torchrun."""
_met: list[Store] = []
"""Stores through which the ranks found each other, one for each group that this process joined."""


class LostRankError(NearfarError):
    """Error raised if another rank has ended or cannot be reached."""


@contextlib.contextmanager
def join_process_group() -> Iterator[None]:
    """Join the processes that torchrun started into one group within the block.

    The backend is gloo between CPUs and nccl between GPUs. Nothing happens if there is only one process, or
    if the group exists already.

    Raises:
        NearfarError: if a rank cannot be reached.
        UsageError: if the environment variables of torchrun are incomplete or invalid.
    """
    if dist.is_initialized() or _asked_world() == 1:
        with translate_rank_errors():
            yield
        return
    _join()
    with translate_rank_errors():
        yield
        is_set_on_any_rank(False)  # wait for all ranks: rank 0 may still be evaluating
    dist.destroy_process_group()  # not after an error: it would wait for lost ranks


def _asked_world() -> int:
    """Return the number of ranks in the environment.

    Raises:
        UsageError: if the environment variables are incomplete or invalid.
    """
    if not {"RANK", "WORLD_SIZE"} & os.environ.keys():
        return 1
    missing = [name for name in TORCHRUN_VARIABLES if name not in os.environ]
    if missing:
        there = next(name for name in ("RANK", "WORLD_SIZE") if name in os.environ)
        raise UsageError(
            f"the environment has {there} but not {', '.join(missing)}: start several ranks with "
            f"`torchrun --nproc-per-node N -m nearfar fit …`, or one with {there} unset"
        )
    wrong = [f"{name}={os.environ[name]}" for name in TORCHRUN_VARIABLES if name != "MASTER_ADDR" and not os.environ[name].isdecimal()]
    if wrong or not int(os.environ["RANK"]) < int(os.environ["WORLD_SIZE"]):
        said = wrong or [f"{name}={os.environ[name]}" for name in ("RANK", "WORLD_SIZE")]
        raise UsageError(f"the environment has {', '.join(said)}, which is not valid: start several ranks with torchrun")
    return int(os.environ["WORLD_SIZE"])


def _join() -> None:
    try:
        store, rank, ranks = next(rendezvous("env://", timeout=timedelta(minutes=10)))
    except (dist.DistError, OSError) as e:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise NearfarError(f"rank {os.environ['RANK']} could not meet the others at {where}: {_first_words(e)}") from e
    _met.append(PrefixStore(f"nearfar-{len(_met)}", store))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=_met[-1], rank=rank, world_size=ranks, timeout=RANK_TIMEOUT)


@contextlib.contextmanager
def translate_rank_errors() -> Iterator[None]:
    """Raise `LostRankError` in place of library errors about a broken connection."""
    try:
        yield
    except RuntimeError as e:
        if get_world_size() == 1 or not (isinstance(e, dist.DistError) or "gloo" in str(e)):
            raise
        raise LostRankError(f"another rank has ended or cannot be reached, so all ranks stop ({_first_words(e)})") from e


def _first_words(e: Exception) -> str:
    """Return the first sentence of an error, without source locations and advice."""
    return re.sub(r"^\[\S+:\d+\] ", "", str(e).strip()).split("\n")[0].split(". ")[0]


def select_rank_device(device: torch.device) -> torch.device:
    """Return the device of this rank: the CPU, or a separate GPU.

    Raises:
        UsageError: if the device is a single GPU, or if the machine has fewer GPUs than ranks.
    """
    if device.type == "cpu":
        return device
    if device.index is not None:
        raise UsageError(f"--device {device} is one GPU for {get_world_size()} ranks: use --device cuda, and each rank uses its own GPU")
    local = int(os.environ.get("LOCAL_RANK", 0))
    here, gpus = max(int(os.environ.get("LOCAL_WORLD_SIZE", 1)), local + 1), torch.cuda.device_count()
    if here > gpus:
        advice = f"--nproc-per-node {gpus}, or --device cpu" if gpus else "--device cpu"
        raise UsageError(f"--device cuda: this machine has {gpus} CUDA devices for {here} ranks. Use {advice}")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def check_ranks_agree(net: Net, **parts: str) -> None:
    """Check that the net and other parts are equal on all ranks. Every rank calls it.

    Args:
        net: net of this rank.
        parts: texts to compare, by name.

    Raises:
        NearfarError: if ranks differ. The message names the ranks and the part.
    """
    if get_world_size() == 1:
        return
    digests = [hashlib.sha256(text.encode()).digest() for text in parts.values()] + [hash_weights(net)]
    own = torch.tensor([list(d) for d in digests], dtype=torch.uint8, device=get_message_device())
    everyone = gather_from_ranks(own[None])[0].tolist()
    for i, name in enumerate([*parts, "weights"]):
        seen = [bytes(of_rank[i]) for of_rank in everyone]
        usual, _ = Counter(seen).most_common(1)[0]
        others = [str(number) for number, digest in enumerate(seen) if digest != usual]
        if others:
            raise NearfarError(
                f"rank {', '.join(others)} of {get_world_size()} differs from the others in its {name}: "
                "every rank needs the same command, the same files and the same versions"
            )


def hash_weights(net: Net) -> bytes:
    """Return the SHA-256 of the net's state."""
    digest = hashlib.sha256()
    for name, t in net.state_dict().items():
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()


def is_secondary_rank() -> bool:
    """Return True if this process is not the first of several ranks.

    Such a rank writes and shows nothing.
    """
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"


def is_reporting_rank() -> bool:
    """Return True if this process reports the reason of its end.

    Of several ranks, the first one that fails reports, because the errors of the others follow from its
    error. Before the ranks are connected they all make the same error, and the first rank of each machine
    reports.
    """
    if not _met:
        return not dist.is_torchelastic_launched() or os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        return _met[-1].add("failed", 1) == 1
    except dist.DistError:  # the rank that kept the count is gone
        return True
