"""Counters in the text format of Prometheus."""

from __future__ import annotations

import bisect
import threading
import time
from collections import Counter
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's cells, in seconds."""


class Metrics:
    """What has happened since the start. Any thread may count."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.cells = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.now = 0
        self.batches = self.jobs = self.rows = 0

    def batch(self, jobs: int, rows: int) -> None:
        with self.lock:
            self.batches, self.jobs, self.rows = self.batches + 1, self.jobs + jobs, self.rows + rows

    def request(self, path: str, status: int, seconds: float) -> None:
        with self.lock:
            self.requests[path, status] += 1
            self.cells[bisect.bisect_left(BOUNDS, seconds)] += 1
            self.seconds += seconds

    def text(self, waiting: int, served: int) -> str:
        with self.lock:
            lines = [
                *_family("requests_total", "counter", "Requests answered, by path and status.", (
                    (f'{{path="{path}",status="{status}"}}', n) for (path, status), n in sorted(self.requests.items()))),
                *_family("request_seconds", "histogram", "From the first byte of a request to the last of its answer.", self._histogram()),
                *_family("requests_now", "gauge", "Requests that are being answered.", [("", self.now)]),
                *_family("jobs_waiting", "gauge", "Requests that wait for the worker.", [("", waiting)]),
                *_family("batches_total", "counter", "Batches the worker computed.", [("", self.batches)]),
                *_family("batched_requests_total", "counter", "Requests in those batches.", [("", self.jobs)]),
                *_family("batched_rows_total", "counter", "Samples and queries in those batches.", [("", self.rows)]),
                *_family("rows_served", "gauge", "Rows that can be found.", [("", served)]),
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[tuple[str, float]]:
        total = 0
        for bound, count in zip((*BOUNDS, "+Inf"), self.cells, strict=True):
            total += count
            yield f'_bucket{{le="{bound}"}}', total
        yield "_sum", round(self.seconds, 6)
        yield "_count", total


def _family(name: str, kind: str, purpose: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    full = f"nearfar_{name}"
    return [f"# HELP {full} {purpose}", f"# TYPE {full} {kind}", *(f"{full}{labels} {value}" for labels, value in samples)]


class Measured:
    """Counts every request of an application. Paths that are not there share one name: strangers must not grow the table."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, began = 500, time.perf_counter()
        self.metrics.now += 1

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self.metrics.now -= 1
            route = scope.get("route")
            self.metrics.request(getattr(route, "path", "other"), status, time.perf_counter() - began)
