"""The run as a sequence over steps: item t is what step t reads, whoever reads it."""

from __future__ import annotations

import itertools
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from nearfar.core import NearfarError, Plan, RandomKey, Rows, Similarity
from nearfar.core.ranks import get_rank, get_world_size

PREFETCH_STEPS = 2
"""Steps that a worker process, or a thread, reads ahead of the training: what they take of memory is bounded by this."""


class StepDataset(Dataset):
    """Item t: what `similarity.read` makes of this rank's rows of step t, one entry a chunk."""

    def __init__(self, data: Any, similarity: Similarity, plan: Plan, rng_key: RandomKey, chunk_size: int | None):
        self.data, self.similarity, self.plan, self.rng_key, self.chunk_size = data, similarity, plan, rng_key, chunk_size
        self.rank, self.world = get_rank(), get_world_size()  # a worker process belongs to no group: it is told here

    def get_row_chunks(self, step: int) -> list[Rows]:
        return self.plan.get_rows(step).select_rank_share(self.rank, self.world).split(self.chunk_size)

    def read_chunks(self, row_chunks: list[Rows]) -> list[Any]:
        return [self.similarity.read(self.data, rows, self.rng_key) for rows in row_chunks]

    def __getitem__(self, step: int) -> list[Any] | NearfarError:
        """For worker processes: what is wrong with a file is handed over as it is, without a worker's traceback around it."""
        try:
            return self.read_chunks(self.get_row_chunks(step))
        except NearfarError as e:
            return e


def iterate_batches(
    dataset: StepDataset, start: int, stop: int, num_workers: int, device: torch.device
) -> Iterator[tuple[int, list[Rows], list[Any]]]:
    """(step, rows, raw samples on the device) for each step from `start` to before `stop`."""
    ahead: Any = itertools.repeat(None)
    if num_workers:
        ahead = DataLoader(
            dataset,
            batch_size=None,
            sampler=range(start, stop),
            num_workers=num_workers,
            prefetch_factor=PREFETCH_STEPS,
            pin_memory=device.type == "cuda",
            worker_init_fn=_quiet_worker,
        )
    elif dataset.similarity.prefetches:
        ahead = _beside(dataset, start, stop)
    for t, raws in zip(range(start, stop), ahead, strict=False):
        if isinstance(raws, NearfarError):
            raise raws
        parts = dataset.get_row_chunks(t)
        yield t, parts, [to_device(raw, device) for raw in (dataset.read_chunks(parts) if raws is None else raws)]


def _beside(steps: StepDataset, start: int, stop: int) -> Iterator[list[Any] | NearfarError]:
    """The same items, read by a thread while the training is at those before."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="reading") as reader:
        coming = deque(reader.submit(steps.__getitem__, t) for t in range(start, min(start + PREFETCH_STEPS, stop)))
        for t in range(start, stop):
            item = coming.popleft().result()
            if t + PREFETCH_STEPS < stop:
                coming.append(reader.submit(steps.__getitem__, t + PREFETCH_STEPS))
            yield item


def _quiet_worker(worker: int) -> None:
    """One thread each; and a signal to the whole group is the main process's to answer: it saves before it ends its workers."""
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def to_device(raw: Any, device: torch.device) -> Any:
    """The same structure with every tensor on the device."""
    if isinstance(raw, torch.Tensor):
        return raw.to(device, non_blocking=True)
    if isinstance(raw, dict):
        return {k: to_device(v, device) for k, v in raw.items()}
    if isinstance(raw, (list, tuple)):
        return type(raw)(to_device(v, device) for v in raw)
    return raw
