"""Counters in the text format of Prometheus."""

from __future__ import annotations

import bisect
import threading
import time
from collections import Counter
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LATENCY_BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""


class ServerMetrics:
    """Counters since the start of the server.

    They are thread-safe.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.bucket_counts = [0] * (len(LATENCY_BOUNDS_SECONDS) + 1)
        self.total_seconds = 0.0
        self.active_requests = 0
        self.batches = self.jobs = self.rows = 0

    def record_batch(self, jobs: int, rows: int) -> None:
        """Count a batch of the worker."""
        with self.lock:
            self.batches, self.jobs, self.rows = self.batches + 1, self.jobs + jobs, self.rows + rows

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request and its time."""
        with self.lock:
            self.requests[path, status] += 1
            self.bucket_counts[bisect.bisect_left(LATENCY_BOUNDS_SECONDS, seconds)] += 1
            self.total_seconds += seconds

    def to_prometheus_text(self, queued_requests: int, served_rows: int) -> str:
        """Return all counters in the text format of Prometheus."""
        with self.lock:
            lines = [
                *_format_metric("requests_total", "counter", "Requests answered, by path and status.", (
                    (f'{{path="{path}",status="{status}"}}', n) for (path, status), n in sorted(self.requests.items()))),
                *_format_metric(
                    "request_seconds", "histogram", "From the first byte of a request to the last of its answer.", self._histogram()),
                *_format_metric("requests_now", "gauge", "Requests that are being answered.", [("", self.active_requests)]),
                *_format_metric("jobs_waiting", "gauge", "Requests that wait for the worker.", [("", queued_requests)]),
                *_format_metric("batches_total", "counter", "Batches the worker computed.", [("", self.batches)]),
                *_format_metric("batched_requests_total", "counter", "Requests in those batches.", [("", self.jobs)]),
                *_format_metric("batched_rows_total", "counter", "Samples and queries in those batches.", [("", self.rows)]),
                *_format_metric("rows_served", "gauge", "Rows that can be searched.", [("", served_rows)]),
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[tuple[str, float]]:
        total = 0
        for bound, count in zip((*LATENCY_BOUNDS_SECONDS, "+Inf"), self.bucket_counts, strict=True):
            total += count
            yield f'_bucket{{le="{bound}"}}', total
        yield "_sum", round(self.total_seconds, 6)
        yield "_count", total


def _format_metric(name: str, metric_type: str, purpose: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    full = f"nearfar_{name}"
    return [f"# HELP {full} {purpose}", f"# TYPE {full} {metric_type}", *(f"{full}{labels} {value}" for labels, value in samples)]


class MetricsMiddleware:
    """Middleware that counts every request.

    Unknown paths share one name, so that requests for random paths cannot grow the table.
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, began = 500, time.perf_counter()
        self.metrics.active_requests += 1

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self.metrics.active_requests -= 1
            route = scope.get("route")
            self.metrics.record_request(getattr(route, "path", "other"), status, time.perf_counter() - began)
