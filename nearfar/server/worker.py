"""Micro-batching: one thread computes requests that arrive together in one batch.

The first waiting job opens a batch. The batch closes after `wait_seconds`, or when it has `max_batch_rows`
rows. Jobs are answered through futures, so that a canceled request costs no computation.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nearfar.server.limits import RequestError

BatchFunction = Callable[[list[Any]], list[Any]]
"""Function from the payloads of several jobs to their results, in order."""


@dataclass
class WorkerJob:
    """Job of one request: its batch function, its payload and its number of rows."""

    batch_function: BatchFunction
    payload: Any
    rows: int
    future: Future = field(default_factory=Future)


class Worker:
    """Worker thread with its queue."""

    def __init__(
        self,
        max_batch_rows: int,
        wait_seconds: float = 0.002,
        max_queued_jobs: int = 1024,
        on_batch: Callable[[int, int], None] | None = None,
    ):
        self.max_batch_rows, self.wait_seconds = max_batch_rows, wait_seconds
        self.on_batch = on_batch
        self.jobs: queue.Queue[WorkerJob | None] = queue.Queue(max_queued_jobs)
        self.thread = threading.Thread(target=self._loop, name="nearfar-worker", daemon=True)
        self.thread.start()

    def submit(self, batch_function: BatchFunction, payload: Any, rows: int) -> Future:
        """Add a job to the queue and return its future.

        Raise if the queue is full.
        """
        job = WorkerJob(batch_function, payload, rows)
        try:
            self.jobs.put_nowait(job)
        except queue.Full:
            raise RequestError(503, "too many requests are waiting: try again in a moment") from None
        return job.future

    def stop(self) -> None:
        """Stop after all waiting jobs are answered."""
        self.jobs.put(None)
        self.thread.join()

    def _loop(self) -> None:
        while (first := self.jobs.get()) is not None:
            batch, ended = self._gather(first)
            alive = [job for job in batch if job.future.set_running_or_notify_cancel()]
            for work in dict.fromkeys(job.batch_function for job in alive):
                self._run_jobs(work, [job for job in alive if job.batch_function == work])
            if ended:
                return

    def _gather(self, first: WorkerJob) -> tuple[list[WorkerJob], bool]:
        """Collect the jobs of one batch.

        Also return True if the worker must stop.
        """
        batch, rows, close = [first], first.rows, time.monotonic() + self.wait_seconds
        while rows < self.max_batch_rows and (left := close - time.monotonic()) > 0:
            try:
                job = self.jobs.get(timeout=left)
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
            rows += job.rows
        return batch, False

    def _run_jobs(self, batch_function: BatchFunction, jobs: list[WorkerJob]) -> None:
        try:
            results = batch_function([job.payload for job in jobs])
        except Exception as e:
            if len(jobs) == 1:
                return jobs[0].future.set_exception(e)
            for job in jobs:  # one of them failed: run each alone, so that the others succeed
                self._run_jobs(batch_function, [job])
            return
        if self.on_batch:
            self.on_batch(len(jobs), sum(job.rows for job in jobs))
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)
