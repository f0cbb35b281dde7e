"""Metrics of the server for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LATENCY_BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""
OTHER_PATH = "other"
"""Label of all unknown paths, so that requests for random paths cannot grow the table."""


class ServerMetrics:
    """Metrics since the start of the server.

    They have their own registry, so that several applications in one process count separately.

    Args:
        count_waiting_jobs: function that returns the number of requests that wait for the worker.
        count_rows: function that returns the number of rows that can be searched.
    """

    def __init__(self, count_waiting_jobs: Callable[[], int], count_rows: Callable[[], int]):
        disable_created_metrics()  # a setting of the library for the whole process
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("nearfar_requests_total", "Requests answered, by path and status.", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            "nearfar_request_seconds", "From the first byte of a request to the last of its answer.",
            buckets=LATENCY_BOUNDS_SECONDS, registry=registry,
        )  # fmt: skip
        self.active_requests = Gauge("nearfar_requests_now", "Requests that are being answered.", registry=registry)
        waiting_jobs = Gauge("nearfar_jobs_waiting", "Requests that wait for the worker.", registry=registry)
        waiting_jobs.set_function(count_waiting_jobs)
        self.batches = Counter("nearfar_batches_total", "Batches the worker computed.", registry=registry)
        self.jobs = Counter("nearfar_batched_requests_total", "Requests in those batches.", registry=registry)
        self.rows = Counter("nearfar_batched_rows_total", "Samples and queries in those batches.", registry=registry)
        served_rows = Gauge("nearfar_rows_served", "Rows that can be searched.", registry=registry)
        served_rows.set_function(count_rows)

    def record_batch(self, jobs: int, rows: int) -> None:
        """Count a batch of the worker."""
        self.batches.inc()
        self.jobs.inc(jobs)
        self.rows.inc(rows)

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request and its time."""
        self.requests.labels(path, status).inc()
        self.request_seconds.observe(seconds)


class MetricsMiddleware:
    """Middleware that counts every request."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, began = 500, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with self.metrics.active_requests.track_inprogress():
                await self.app(scope, receive, watched)
        finally:
            path = getattr(scope.get("route"), "path", OTHER_PATH)
            self.metrics.record_request(path, status, time.perf_counter() - began)
