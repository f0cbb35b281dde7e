"""Loader of training steps: reads the raw samples of each step, ahead of the training.

The samples of a step are the same whether the main process, a thread or a worker process reads them.
"""

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
"""Number of steps that a worker process or a thread reads ahead. It bounds their use of memory."""


class StepDataset(Dataset):
    """Dataset of training steps.

    Element t is the list of raw samples of step t on this rank, one entry for each chunk, as
    `similarity.read` returns them.
    """

    def __init__(self, data: Any, similarity: Similarity, plan: Plan, rng_key: RandomKey, chunk_size: int | None):
        self.data, self.similarity, self.plan, self.rng_key, self.chunk_size = data, similarity, plan, rng_key, chunk_size
        self.rank, self.world = get_rank(), get_world_size()  # worker processes belong to no group

    def get_row_chunks(self, step: int) -> list[Rows]:
        """Return this rank's rows of a step, split into chunks."""
        return self.plan.get_rows(step).select_rank_share(self.rank, self.world).split(self.chunk_size)

    def read_chunks(self, row_chunks: list[Rows]) -> list[Any]:
        """Read the raw samples of each chunk."""
        return [self.similarity.read(self.data, rows, self.rng_key) for rows in row_chunks]

    def __getitem__(self, step: int) -> list[Any] | NearfarError:
        """Read the raw samples of a step.

        An error in a file is returned instead of raised. In a worker process, a raised error would get the
        worker's traceback.
        """
        try:
            return self.read_chunks(self.get_row_chunks(step))
        except NearfarError as e:
            return e


def iterate_batches(
    dataset: StepDataset, start: int, stop: int, num_workers: int, device: torch.device
) -> Iterator[tuple[int, list[Rows], list[Any]]]:
    """Yield (step, rows, raw samples on the device) for each step.

    Args:
        dataset: the training steps.
        start: first step.
        stop: step after the last.
        num_workers: worker processes that read. With 0, a thread reads if the similarity prefetches, else the
            main process.
        device: device of the raw samples.

    Raises:
        NearfarError: if a sample cannot be read.
    """
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
    """Yield the elements of the dataset in order, read ahead by a thread."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="reading") as reader:
        coming = deque(reader.submit(steps.__getitem__, t) for t in range(start, min(start + PREFETCH_STEPS, stop)))
        for t in range(start, stop):
            item = coming.popleft().result()
            if t + PREFETCH_STEPS < stop:
                coming.append(reader.submit(steps.__getitem__, t + PREFETCH_STEPS))
            yield item


def _quiet_worker(worker: int) -> None:
    """Prepare a worker process: use one thread and ignore interrupts.

    The main process handles signals. It saves a checkpoint before it ends its workers.
    """
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def to_device(raw: Any, device: torch.device) -> Any:
    """Move all tensors of a structure to the device."""
    if isinstance(raw, torch.Tensor):
        return raw.to(device, non_blocking=True)
    if isinstance(raw, dict):
        return {k: to_device(v, device) for k, v in raw.items()}
    if isinstance(raw, (list, tuple)):
        return type(raw)(to_device(v, device) for v in raw)
    return raw
