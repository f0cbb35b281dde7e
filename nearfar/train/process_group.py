"""From torchrun's environment to one group of ranks: joining it, this rank's device, agreement at the start, who speaks at the end."""

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
"""How long ranks wait for one another. Rank 0 evaluates and saves while the others wait, for as long as that takes; a rank that
dies is noticed at once, by its closed connections and by torchrun."""
_met: list[Store] = []
"""Where the ranks of this process's groups found each other, one entry for each group it joined."""


class LostRankError(NearfarError):
    """Another rank does not answer any more."""


@contextlib.contextmanager
def join_process_group() -> Iterator[None]:
    """Within the block the processes that torchrun started are one group: gloo between CPUs, nccl between GPUs.

    Nothing happens where there is one process only, or a group already.
    """
    if dist.is_initialized() or _asked_world() == 1:
        with translate_rank_errors():
            yield
        return
    _join()
    with translate_rank_errors():
        yield
        is_set_on_any_rank(False)  # all meet: rank 0 may still be evaluating
    dist.destroy_process_group()  # not after an error: it would wait for ranks that are gone


def _asked_world() -> int:
    """How many ranks the environment speaks of; a clear error where it speaks of some but does not say all."""
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
        raise UsageError(f"the environment has {', '.join(said)}, which makes no sense: start several ranks with torchrun")
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
    """What a library says when a connection breaks, in words a user can act on."""
    try:
        yield
    except RuntimeError as e:
        if get_world_size() == 1 or not (isinstance(e, dist.DistError) or "gloo" in str(e)):
            raise
        raise LostRankError(f"another rank has ended or cannot be reached, so that all stop ({_first_words(e)})") from e


def _first_words(e: Exception) -> str:
    """What happened, without the place in the library's source and without its advice."""
    return re.sub(r"^\[\S+:\d+\] ", "", str(e).strip()).split("\n")[0].split(". ")[0]


def select_rank_device(device: torch.device) -> torch.device:
    """The CPU for every rank, or one GPU for each rank of a machine."""
    if device.type == "cpu":
        return device
    if device.index is not None:
        raise UsageError(f"--device {device} is one GPU for {get_world_size()} ranks: use --device cuda, and each rank takes its own")
    local = int(os.environ.get("LOCAL_RANK", 0))
    here, gpus = max(int(os.environ.get("LOCAL_WORLD_SIZE", 1)), local + 1), torch.cuda.device_count()
    if here > gpus:
        advice = f"--nproc-per-node {gpus}, or --device cpu" if gpus else "--device cpu"
        raise UsageError(f"--device cuda: this machine has {gpus} CUDA devices for {here} ranks. Use {advice}")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def check_ranks_agree(net: Net, **parts: str) -> None:
    """An error that names the ranks whose net, or whose further parts, are not those of the others. Every rank calls it."""
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
    """A hash of every byte of the net's state."""
    digest = hashlib.sha256()
    for name, t in net.state_dict().items():
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()


def is_secondary_rank() -> bool:
    """Whether this process is one of several ranks and not the first: it writes and shows nothing."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"


def is_reporting_rank() -> bool:
    """Whether this process says why it ends: of several ranks the first that fails, since what the others meet follows from it.

    Before ranks know each other, their mistakes are the same: the first of each machine speaks.
    """
    if not _met:
        return not dist.is_torchelastic_launched() or os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        return _met[-1].add("failed", 1) == 1
    except dist.DistError:  # whoever kept the count is gone
        return True
