"""Application of the server: paths found by walking folders, and metrics of each application for itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from serving import TOKEN, ask_app

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from nearfar.index import build_index, open_index
from nearfar.server import routes
from nearfar.server.app import build_app
from nearfar.server.collection import IndexCollection
from nearfar.server.explorer.page_data import Explorer
from nearfar.server.metrics import LATENCY_BOUNDS_SECONDS, MetricsMiddleware, ServerMetrics
from nearfar.server.service import Service

PATHS = {
    "POST /embed", "POST /search", "GET /health", "GET /metrics", "POST /session",
    "GET /explorer/about", "GET /explorer/rows", "GET /explorer/map", "GET /explorer/column",
    "GET /explorer/sample/{row}", "GET /explorer/picture/{row}", "GET /explorer/sound/{row}", "GET /explorer/neighbors/{row}",
    "GET /explorer/curves", "GET /explorer/health", "GET /explorer/views", "GET /explorer/findings",
    "GET /explorer/plane", "GET /explorer/compare/map", "GET /explorer/compare/moved",
}  # fmt: skip
"""All documented paths. Clients depend on them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    vectors = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    build_index(vectors, None, folder := tmp_path_factory.mktemp("routes") / "index")
    return folder


@contextmanager
def opened(folder: Path, explorer: bool = False, token: str | None = None) -> Iterator[FastAPI]:
    """Build the application of an index and stop its threads in the end."""
    service = Service(IndexCollection(open_index(folder), None))
    page = Explorer(service, None, "pca") if explorer else None
    try:
        yield build_app(service, token, explorer=page)
    finally:
        service.worker.stop()
        if page is not None:
            page.stop()
            page.tasks.worker.stop()


def documented_paths(app: FastAPI) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}


def read_metrics(app: FastAPI) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values of the metrics page by name and label values, as the library's parser reads them."""
    status, _, text = ask_app(app, "GET", "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


def test_the_documented_paths_are_those_clients_know(folder):
    with opened(folder, explorer=True) as app:
        assert documented_paths(app) == PATHS
    with opened(folder) as app:
        assert documented_paths(app) == {path for path in PATHS if "/explorer/" not in path}
        assert ask_app(app, "GET", "/")[0] == 404


def test_a_new_file_in_the_folder_is_a_new_route(folder, tmp_path, monkeypatch):
    (tmp_path / "greeting.py").write_text(
        "from fastapi import APIRouter\n"
        "from nearfar.server.dependencies import ServiceDependency\n"
        "router = APIRouter()\n"
        "@router.get('/greeting')\n"
        "async def greeting(service: ServiceDependency) -> int:\n    return len(service.collection)\n"
    )
    monkeypatch.setattr(routes, "__path__", [*routes.__path__, str(tmp_path)])
    with opened(folder) as app:
        assert ask_app(app, "GET", "/greeting")[::2] == (200, b"20")


def test_two_applications_answer_from_their_own_data(folder, tmp_path):
    build_index(np.eye(3, dtype=np.float32), None, tmp_path / "small")
    with opened(folder, token=TOKEN) as large, opened(tmp_path / "small") as small:
        health = [json.loads(ask_app(app, "GET", "/health")[2]) for app in (large, small, large)]
        assert [(found["rows"], found["dim"]) for found in health] == [(20, 4), (3, 3), (20, 4)]
        assert [ask_app(app, "POST", "/session", {"token": "wrong"})[0] for app in (large, small)] == [401, 204]
        assert [ask_app(app, "GET", "/metrics")[0] for app in (large, small)] == [401, 200]


def test_metrics_count_known_requests(folder):
    with opened(folder) as app:
        for _ in range(3):
            assert ask_app(app, "POST", "/search", {"rows": [1, 2], "k": 2})[0] == 200
        ask_app(app, "POST", "/search", {"rows": []})
        for name in ("one", "two"):
            ask_app(app, "GET", f"/{name}")
        ask_app(app, "DELETE", "/health")
        found = read_metrics(app)
    counted = {labels: value for (name, labels), value in found.items() if name == "nearfar_requests_total"}
    assert counted == {("/search", "200"): 3, ("/search", "422"): 1, ("other", "404"): 2, ("/health", "405"): 1}
    expected = {"batches_total": 3, "batched_requests_total": 3, "batched_rows_total": 6, "rows_served": 20, "jobs_waiting": 0}
    assert {name: found[f"nearfar_{name}", ()] for name in expected} == expected
    assert found["nearfar_requests_now", ()] == 1, "the request of the page itself"


def test_the_latency_histogram_holds_every_request(folder):
    with opened(folder) as app:
        for _ in range(4):
            ask_app(app, "GET", "/health")
        found = read_metrics(app)
    buckets = {labels[0]: value for (name, labels), value in found.items() if name == "nearfar_request_seconds_bucket"}
    assert list(buckets) == [*map(str, LATENCY_BOUNDS_SECONDS), "+Inf"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets["+Inf"] == found["nearfar_request_seconds_count", ()] == 4
    assert 0 < found["nearfar_request_seconds_sum", ()] < 60


def test_two_applications_count_separately(folder):
    with opened(folder) as one, opened(folder) as other:
        for _ in range(2):
            ask_app(one, "POST", "/search", {"rows": [1]})
        ask_app(other, "GET", "/health")
        counts = [{key[1]: n for key, n in read_metrics(app).items() if key[0] == "nearfar_requests_total"} for app in (one, other)]
        assert counts == [{("/search", "200"): 2}, {("/health", "200"): 1}]
        assert [read_metrics(app)["nearfar_batches_total", ()] for app in (one, other)] == [2, 0]


def test_the_metrics_page_has_the_type_of_the_library_and_no_creation_times(folder):
    with opened(folder) as app:
        _, headers, text = ask_app(app, "GET", "/metrics")
        assert headers["content-type"] == CONTENT_TYPE_LATEST
        assert "_created" not in text.decode()
        types = {family.name: family.type for family in text_string_to_metric_families(text.decode())}
        assert {name.removeprefix("nearfar_"): kind for name, kind in types.items()} == {
            "requests": "counter", "request_seconds": "histogram", "requests_now": "gauge", "jobs_waiting": "gauge",
            "batches": "counter", "batched_requests": "counter", "batched_rows": "counter", "rows_served": "gauge",
        }  # fmt: skip


def test_a_request_that_fails_inside_counts_as_500():
    metrics = ServerMetrics(lambda: 0, lambda: 0)
    seen = []

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(metrics.registry.get_sample_value("nearfar_requests_now"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask_app(MetricsMiddleware(fail, metrics), "GET", "/")
    assert seen == [1]
    assert metrics.registry.get_sample_value("nearfar_requests_now") == 0
    assert metrics.registry.get_sample_value("nearfar_requests_total", {"path": "other", "status": "500"}) == 1
