"""Clients that take their time, and requests that take too much of the server's: a real process, sockets that dribble."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time

import numpy as np
import pytest
from serving import TOKEN, png, serving, small_run, until, upload

pytest.importorskip("fastapi", reason="the extra serve is not installed")

pytestmark = pytest.mark.slow
SECONDS = 1.5
SLACK = 15.0
"""How much later than it should an answer may come on a busy machine; without time-outs it would never come."""
KEY = f"host: localhost\r\nauthorization: Bearer {TOKEN}\r\n".encode()
LATE = {"error": f"the request did not arrive within {SECONDS:g} seconds"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(small_run(tmp_path_factory.mktemp("slow") / "run"), "--map", "pca", "--timeout", str(SECONDS)) as found:
        yield found


def dribble(port: int, first: bytes, drops: bytes, pause: float = 0.1) -> tuple[bytes, float]:
    """What a server says to one that sends `first` at once and then one byte after the other, and after how many seconds it is done."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS + SLACK) as raw:
        raw.sendall(first)
        gone = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                for drop in drops:
                    if gone.wait(pause):
                        return
                    raw.send(bytes([drop]))

        thread = threading.Thread(target=drip)
        thread.start()
        heard = b""
        with contextlib.suppress(ConnectionResetError):  # what was sent after the end may be answered so
            while more := raw.recv(4096):
                heard += more
        gone.set()
        thread.join()
    return heard, time.monotonic() - began


def said(heard: bytes) -> tuple[int, dict]:
    """Status and JSON of the only answer on a connection."""
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"Traceback" not in heard
    return int(head.split()[1]), json.loads(body)


def post(path: str, kind: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n".encode() + KEY + b"\r\n"


FORM = "multipart/form-data; boundary=edge"
SLOW = {
    "a body of JSON": (post("/embed", "application/json", 5000), b" " * 5000),
    "bare vectors": (post("/search", "application/octet-stream", 5000), b"\0" * 5000),
    "an upload": (
        post("/search", FORM, 5000),
        b'--edge\r\nContent-Disposition: form-data; name="images"; filename="1"\r\n\r\n' + b"x" * 4900,
    ),
    "a login": (post("/session", "application/json", 5000), b" " * 5000),
    "a chunked body": (b"POST /embed HTTP/1.1\r\ntransfer-encoding: chunked\r\n" + KEY + b"\r\n", b"1\r\n \r\n" * 500),
    "a head": (b"POST /embed HTTP/1.1\r\n", b"x-slow: " + b"y" * 5000),
    "a second head": (b"GET /favicon.ico HTTP/1.1\r\n" + KEY + b"\r\n", b"GET /health HTTP/1.1\r\nx: " + b"y" * 5000),
}


def test_whoever_dribbles_is_told_so_in_time_and_let_go(server):
    found: dict[str, tuple[bytes, float]] = {}

    def slow(name: str) -> None:
        found[name] = dribble(server.port, *SLOW[name])

    threads = [threading.Thread(target=slow, args=(name,)) for name in SLOW]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == set(SLOW)
    for name, (heard, seconds) in found.items():
        last = heard[heard.rindex(b"HTTP/1.1 ") :]
        assert said(last) == (408, LATE), name
        assert b"connection: close" in last.lower(), name
        assert SECONDS <= seconds < SECONDS + SLACK, name
    assert server.ask("GET", "/health")[0] == 200


def test_a_silent_connection_is_closed_without_a_word(server):
    heard, seconds = dribble(server.port, b"", b"")
    assert heard == b""
    assert SECONDS <= seconds < SECONDS + SLACK


def test_a_slow_body_that_is_there_in_time_is_answered(server):
    body = b'{"rows": [1]}'
    heard, _ = dribble(server.port, post("/embed", "application/json", len(body))[:-2] + b"connection: close\r\n\r\n", body, pause=0.02)
    status, answer = said(heard)
    assert status == 200
    assert len(answer["vectors"]) == 1


def test_an_answer_that_takes_too_long_is_given_up_and_the_server_goes_on(server):
    """Forty million white pixels are a small file and some work: as many as take three times too long, by the time of two."""
    white = png(np.full((6000, 6000), 255, dtype=np.uint8))
    began = time.monotonic()
    body, kind = upload([white] * 2)
    server.ask("POST", "/embed", body, content_type=kind)
    body, kind = upload([white] * math.ceil(6 * SECONDS / (time.monotonic() - began)))
    began = time.monotonic()
    status, answer = server.ask("POST", "/search", body, content_type=kind)
    seconds = time.monotonic() - began
    assert (status, json.loads(answer)) == (504, {"error": f"this took longer than {SECONDS:g} seconds: ask for less at once"})
    assert seconds < SECONDS + SLACK
    assert server.ask("GET", "/health")[0] == 200
    until(lambda: server.ask("POST", "/embed", {"rows": [1]})[0] == 200)
    assert b'path="/search",status="504"' in server.ask("GET", "/metrics")[1]


def test_a_time_that_is_none_is_refused(tmp_path, capsys):
    from nearfar.cli.main import main

    assert main(["serve", str(tmp_path), "--timeout", "0"]) == 2
    assert "--timeout 0: a number of seconds above 0" in capsys.readouterr().err
