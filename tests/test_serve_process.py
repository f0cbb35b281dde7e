"""The server as its users meet it: a process on a loopback port, many clients at once, and people who mean it no good."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from serving import TOKEN, ask, png, serving, small_run, until, upload
from test_serve_parts import bomb

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from nearfar.server.guard import COOKIE_NAME, compute_session_cookie
from nearfar.server.limits import Limits

pytestmark = pytest.mark.slow
CLIENTS = 64
SECONDS = 3.0
NOISE = [png(p) for p in np.random.default_rng(0).integers(0, 256, (32, 8, 8), dtype=np.uint8)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("serving") / "run")


@pytest.fixture(scope="module")
def server(run):
    with serving(run, "--map", "pca") as found:
        yield found


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def requests() -> list[tuple[str, dict, dict]]:
    """(path, body, headers) of requests of every kind, alone and several at once."""
    found: list[tuple[str, dict, dict]] = []
    for i in range(0, 24, 3):
        some = [encoded(data) for data in NOISE[i : i + 1 + i % 5]]
        found.append(("/embed", {"images": some}, {}))
        found.append(("/search", {"images": some, "k": 1 + i}, {}))
        found.append(("/search", {"rows": [i, 100 + i], "k": 5}, {"accept": "application/x-npy"}))
    return found


def test_health_embed_and_search_agree_with_each_other(server):
    status, health = server.json("GET", "/health", token=None)
    assert (status, health["status"], health["rows"], health["modality"]) == (200, "ok", 1797, "image")
    status, embedded = server.json("POST", "/embed", {"images": [encoded(NOISE[0])]})
    assert (status, len(embedded["vectors"][0])) == (200, health["dim"])
    _, by_image = server.json("POST", "/search", {"images": [encoded(NOISE[0])], "k": 4})
    _, by_vector = server.json("POST", "/search", {"vectors": embedded["vectors"], "k": 4})
    assert by_image == by_vector
    body, kind = upload(NOISE[:1], k="4")
    _, by_upload = server.ask("POST", "/search", body, content_type=kind)
    assert json.loads(by_upload) == by_image
    _, own = server.json("POST", "/search", {"rows": [17], "k": 2})
    assert own["hits"][0][0] | {"score": 1.0} == {"row": 17, "name": "row 17", "label": "7", "score": 1.0}
    assert own["hits"][0][0]["score"] > own["hits"][0][1]["score"]


def test_binary_vectors_in_and_out_are_those_of_json(server):
    _, answer = server.ask("POST", "/embed", {"rows": [5, 9]}, accept="application/x-npy")
    vectors = np.load(io.BytesIO(answer), allow_pickle=False)
    assert vectors.dtype == np.float32
    _, plain = server.json("POST", "/embed", {"rows": [5, 9]})
    assert np.array_equal(vectors, np.array(plain["vectors"], dtype=np.float32))
    status, answer = server.ask(
        "POST", "/search?k=3", vectors.tobytes(), content_type="application/octet-stream", accept="application/octet-stream"
    )
    hits = np.frombuffer(answer, dtype=[("row", "<i8"), ("score", "<f4")]).reshape(2, 3)
    assert (status, hits["row"][:, 0].tolist()) == (200, [5, 9])
    _, said = server.json("POST", "/search", {"vectors": vectors.astype(float).tolist(), "k": 3})
    assert [[hit["row"] for hit in one] for one in said["hits"]] == hits["row"].tolist()


def test_64_clients_at_once_lose_nothing_and_get_the_answers_of_one(server):
    asked = requests()
    serial = [server.ask("POST", path, body, **headers) for path, body, headers in asked]
    assert all(status == 200 for status, _ in serial)
    _, before = server.ask("GET", "/metrics")
    done, wrong, ends = [0] * CLIENTS, [], time.monotonic() + SECONDS

    def client(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            while time.monotonic() < ends or not done[number]:
                at = (number + 7 * done[number]) % len(asked)
                path, body, headers = asked[at]
                found = ask(connection, "POST", path, body, **headers)
                done[number] += 1
                if found != serial[at]:
                    wrong.append((at, found[0]))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(done) >= 1
    _, after = server.ask("GET", "/metrics")
    answered = [sum(map(int, re.findall(r'path="/(?:embed|search)",status="200"} (\d+)', text.decode()))) for text in (before, after)]
    assert answered[1] - answered[0] == sum(done)
    jobs, batches = (float(re.search(rf"nearfar_{name}_total (\d+)", after.decode())[1]) for name in ("batched_requests", "batches"))
    assert jobs > 1.5 * batches, "requests were not gathered"


def test_clear_refusals_in_json(server):
    for path, body, status, said in [
        ("/search", {}, 422, "exactly one of"),
        ("/search", {"rows": [1], "texts": ["a"]}, 422, "exactly one of"),
        ("/search", {"rows": []}, 422, "empty"),
        ("/search", {"rows": [1], "k": 0}, 422, "k"),
        ("/search", {"rows": [1], "k": 1001}, 422, "1 to 1000"),
        ("/search", {"rows": [1797]}, 404, "no row 1797"),
        ("/search", {"rows": [-1]}, 404, "no row -1"),
        ("/search", {"rows": list(range(1797)) * 3}, 413, "4,096"),
        ("/search", {"rows": list(range(1797)), "k": 1000}, 413, "hits"),
        ("/search", {"vectors": [[1.0, 2.0]]}, 422, "numbers"),
        ("/search", {"vectors": [[1e300] * 128]}, 422, "finite"),
        ("/search", {"nonsense": 1}, 422, "nonsense"),
        ("/embed", {"texts": ["a"]}, 422, "cannot embed texts"),
        ("/embed", {"images": ["%%%"]}, 422, "base64"),
        ("/embed", {"images": [encoded(b"no image")]}, 422, "not a JPEG"),
        ("/embed", {"images": [encoded(bomb(9000, 9000))]}, 413, "pixels"),
        ("/nothing", {}, 404, "Not Found"),
    ]:
        found, answer = server.json("POST", path, body)
        assert (found, list(answer)) == (status, ["error"]), (path, body, answer)
        assert said in answer["error"]
    assert server.ask("GET", "/search")[0] == 405
    assert server.ask("POST", "/search", b"{", content_type="application/json")[0] == 422
    assert server.ask("POST", "/search", b"x", content_type="text/plain")[0] == 415
    assert server.ask("POST", "/search", b"xyz", content_type="application/octet-stream")[0] == 422
    assert server.ask("POST", "/search", b"--x", content_type="multipart/form-data; boundary=y")[0] in (400, 422)


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(server):
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest("POST", "/embed")
        for name, value in (("authorization", f"Bearer {TOKEN}"), ("content-length", str(33 << 20)), ("content-type", "application/json")):
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, "33,554,432 are allowed" in answer.read().decode()) == (413, True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        head = f"POST /embed HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ntransfer-encoding: chunked\r\n\r\n"
        raw.sendall(head.encode())
        with contextlib.suppress(OSError):  # it stops listening before all is sent
            for _ in range(40):
                raw.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        assert b" 413 " in raw.recv(4096)


def test_who_may_ask(server):
    for token in (None, "wrong", TOKEN + "x", ""):
        status, answer = server.json("POST", "/search", {"rows": [1]}, token=token)
        assert (status, list(answer)) == (401, ["error"])
        assert server.ask("GET", "/metrics", token=token)[0] == 401
        assert server.ask("GET", "/openapi.json", token=token)[0] == 401
    assert server.ask("POST", "/session", {"token": "wrong"}, token=None)[0] == 401
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/session", json.dumps({"token": TOKEN}), {"content-type": "application/json"})
        answer = connection.getresponse()
        cookie = answer.headers["set-cookie"]
        assert answer.read() == b""
    assert "HttpOnly" in cookie
    assert TOKEN not in cookie
    assert server.ask("GET", "/metrics", token=None, cookie=cookie.split(";")[0])[0] == 200
    assert server.ask("GET", "/health", host="rebound.example.com")[0] == 403


def test_a_session_of_another_token_is_rejected(server):
    for token, status in ((TOKEN, 200), ("another token", 401), ("", 401)):
        assert server.ask("GET", "/metrics", token=None, cookie=f"{COOKIE_NAME}={compute_session_cookie(token)}")[0] == status


@pytest.mark.parametrize("path", ["/metrics/static/", "/explorer/static/main.js", "//static/", "/static", "/docs/static/docs/begin.js"])
def test_only_paths_that_begin_with_static_need_no_token(server, path):
    assert server.ask("GET", path, token=None)[0] == 401
    assert server.ask("GET", "/static/docs/begin.js", token=None)[0] == 200


def many_vectors(count: int, dim: int) -> tuple[bytes, str]:
    return np.ones((count, dim), np.float32).tobytes(), "application/octet-stream"


def test_the_item_limit_is_the_largest_number_that_passes(server):
    """Texts and empty images get 422 for another reason, but only if their number passes."""
    _, health = server.json("GET", "/health")
    as_json = lambda body: (json.dumps(body).encode(), "application/json")
    kinds = {
        "rows": (lambda n: as_json({"rows": [0] * n}), 200),
        "texts": (lambda n: as_json({"texts": ["a"] * n}), 422),
        "images": (lambda n: as_json({"images": [""] * n}), 422),
        "vectors": (lambda n: many_vectors(n, health["dim"]), 200),
        "uploads": (lambda n: upload([b""] * n), 422),
    }
    for kind, (make, passes) in kinds.items():
        at_limit, above = (make(Limits().samples + extra) for extra in (0, 1))
        assert server.ask("POST", "/search?k=1", at_limit[0], content_type=at_limit[1])[0] == passes, kind
        assert server.ask("POST", "/search?k=1", above[0], content_type=above[1])[0] in (400, 413), kind


@pytest.mark.parametrize(
    "path", ["/static/../../../etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "/static/docs/..%2f..%2f__init__.py", "//etc/passwd"]
)
def test_no_path_leads_out_of_the_package(server, path):
    status, answer = server.ask("GET", path)
    assert status == 404
    assert json.loads(answer) == {"error": "Not Found"}


def test_the_documentation_needs_no_other_server(server):
    _, page = server.ask("GET", "/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.decode())
    assert len(loaded) == 4
    for path in loaded[1:]:  # the first is an empty icon
        assert path.startswith("/static/docs/")
        status, file = server.ask("GET", path)
        assert status == 200
        assert len(file) > 50
    _, described = server.json("GET", "/openapi.json")
    assert {"/embed", "/search", "/health", "/metrics"} <= set(described["paths"])


def test_schemathesis_finds_no_server_error(server):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
    seen = set()

    def nothing_fails(case) -> None:
        answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, base_url=server.address)
        assert answer.status_code < 500, (case.operation.label, answer.text)
        if answer.status_code >= 400:
            assert list(answer.json()) == ["error"]
        seen.add(case.operation.path)

    bounded = settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True)
    for result in schema.get_all_operations():
        bounded(given(case=result.ok().as_strategy())(nothing_fails))()
    assert {"/embed", "/search", "/health"} <= seen


def test_sigterm_lets_requests_in_flight_end(run):
    """Large pictures take a while to decode: all requests are inside when the signal comes."""
    large = png(np.random.default_rng(1).integers(0, 256, (1200, 1200), dtype=np.uint8))
    body, kind = upload([large])
    with serving(run, "--map", "pca", token=None) as server:
        _, expected = server.ask("POST", "/embed", body, token=None, content_type=kind)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.ask("POST", "/embed", body, token=None, content_type=kind)))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        until(lambda: float(re.search(rb"requests_now (\d+)", server.ask("GET", "/metrics", token=None)[1])[1]) > 6)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(30) == 0
        assert [answer for answer in answers if answer != (200, expected)] == []
        assert len(answers) == 12
        with pytest.raises(ConnectionRefusedError):
            server.ask("GET", "/health")


def test_a_server_that_others_can_reach_needs_a_token(run):
    command = [sys.executable, "-m", "nearfar", "serve", str(run), "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "NEARFAR_TOKEN" in done.stderr
