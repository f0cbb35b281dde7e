"""Micro-batching: one thread computes, requests that arrive together are computed together.

The first waiting job opens a batch; it closes when `wait` seconds have passed or `rows` rows are in it. Jobs are answered through
futures, so that a request that has given up costs nothing any more.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nearfar.server.limits import Refused

Work = Callable[[list[Any]], list[Any]]
"""From the payloads of several jobs to their results, in order."""


@dataclass
class Job:
    """What one request wants computed: by which work, of how many rows."""

    work: Work
    payload: Any
    rows: int
    answer: Future = field(default_factory=Future)


class Worker:
    """The thread, and the queue before it."""

    def __init__(self, rows: int, wait: float = 0.002, waiting: int = 1024, observe: Callable[[int, int], None] | None = None):
        self.rows, self.wait = rows, wait
        self.observe = observe
        self.jobs: queue.Queue[Job | None] = queue.Queue(waiting)
        self.thread = threading.Thread(target=self._loop, name="nearfar-worker", daemon=True)
        self.thread.start()

    def submit(self, work: Work, payload: Any, rows: int) -> Future:
        job = Job(work, payload, rows)
        try:
            self.jobs.put_nowait(job)
        except queue.Full:
            raise Refused(503, "too many requests are waiting: try again in a moment") from None
        return job.answer

    def stop(self) -> None:
        """After what is waiting now has been answered."""
        self.jobs.put(None)
        self.thread.join()

    def _loop(self) -> None:
        while (first := self.jobs.get()) is not None:
            batch, ended = self._gather(first)
            alive = [job for job in batch if job.answer.set_running_or_notify_cancel()]
            for work in dict.fromkeys(job.work for job in alive):
                self._answer(work, [job for job in alive if job.work == work])
            if ended:
                return

    def _gather(self, first: Job) -> tuple[list[Job], bool]:
        """The jobs of one batch, and whether the end was among them."""
        batch, rows, close = [first], first.rows, time.monotonic() + self.wait
        while rows < self.rows and (left := close - time.monotonic()) > 0:
            try:
                job = self.jobs.get(timeout=left)
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
            rows += job.rows
        return batch, False

    def _answer(self, work: Work, jobs: list[Job]) -> None:
        try:
            results = work([job.payload for job in jobs])
        except Exception as e:
            if len(jobs) == 1:
                return jobs[0].answer.set_exception(e)
            for job in jobs:  # one of them is to blame: the others shall not notice
                self._answer(work, [job])
            return
        if self.observe:
            self.observe(len(jobs), sum(job.rows for job in jobs))
        for job, result in zip(jobs, results, strict=True):
            job.answer.set_result(result)
