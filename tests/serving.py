"""A server in a process of its own, for tests: started, asked, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TOKEN = "correct horse"


def small_run(folder: Path, seed: int = 0) -> Path:
    """SimCLR after two steps: enough to serve."""
    import nearfar

    nearfar.fit("simclr", preset="tiny", out=folder, steps=2, batch_size=32, seed=seed)
    return folder


class Server:
    """One process, and a connection to it for whoever asks from this thread."""

    def __init__(self, process: subprocess.Popen, port: int):
        self.process, self.port = process, port

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str) -> tuple[int, bytes]:
        with contextlib.closing(self.connect()) as connection:
            return ask(connection, method, path, body, token, **headers)

    def json(self, method: str, path: str, body: Any = None, **how: Any) -> tuple[int, Any]:
        status, answer = self.ask(method, path, body, **how)
        return status, json.loads(answer)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str
) -> tuple[int, bytes]:
    """Status and bytes of the answer. A dict is sent as JSON."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(body, dict):
        body = json.dumps(body)
        sent["content-type"] = "application/json"
    if token:
        sent["authorization"] = f"Bearer {token}"
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    return answer.status, answer.read()


def ask_app(app: Any, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send one request to an application in this process. Return status, headers and bytes of the response."""
    sent = {"host": "localhost", "content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "server": ("localhost", 80),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }  # fmt: skip
    parts = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
    answers: list[Any] = []

    async def receive() -> Any:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answers.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode().lower(): value.decode() for name, value in answers[0]["headers"]}
    return answers[0]["status"], found, b"".join(message.get("body", b"") for message in answers[1:])


@contextlib.contextmanager
def serving(path: Path, *flags: str, token: str | None = TOKEN) -> Iterator[Server]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"NEARFAR_TOKEN": token} if token else {})
    command = [sys.executable, "-m", "nearfar", "serve", str(path), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], 120)[0], "the server does not start"
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line + process.communicate()[1]
        yield Server(process, int(line.rpartition(":")[2]))
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def until(condition: Any, seconds: float = 30) -> Any:
    """What a condition says, once it says something."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.01)
    return found


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def upload(files: list[bytes], name: str = "images", **fields: str) -> tuple[bytes, str]:
    """A multipart body and its content type."""
    edge = "edge-of-a-part"
    parts = [f'--{edge}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items()]
    for number, data in enumerate(files):
        head = f'--{edge}\r\nContent-Disposition: form-data; name="{name}"; filename="{number}.png"\r\nContent-Type: image/png\r\n\r\n'
        parts.append(head.encode() + data + b"\r\n")
    return b"".join(parts) + f"--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"
