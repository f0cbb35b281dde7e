"""The server's parts alone: batches that do not change answers, exact neighbors, limits, the cache."""

from __future__ import annotations

import asyncio
import io
import struct
import threading
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from serving import png, small_run

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import nearfar
from nearfar.server.cache import ArrayCache
from nearfar.server.encoder import BatchEncoder
from nearfar.server.guard import GuardMiddleware, is_loopback
from nearfar.server.limits import Limits, RequestError
from nearfar.server.neighbors import ExactCosineSearch, SearchRequest, normalize_rows
from nearfar.server.requests import _parse_npy
from nearfar.server.sample_inputs import prepare_samples
from nearfar.server.worker import Worker


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return nearfar.load(small_run(tmp_path_factory.mktemp("serve") / "run"), device="cpu")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    out = tmp_path_factory.mktemp("serve") / "run"
    lines = [f"The {colour} {thing} number {i} is here" for i in range(8) for colour in ("red", "blue") for thing in ("cat", "house")]
    nearfar.fit("simcse-unsup", lines, preset="tiny", out=out, steps=2, batch_size=16)
    return nearfar.load(out, device="cpu")


def test_a_vector_is_the_same_to_the_last_bit_in_any_company(images):
    noise = np.random.default_rng(0).integers(0, 256, (23, 8, 8), dtype=np.uint8)
    samples = prepare_samples(images, "images", [png(p) for p in noise], Limits())
    encoder = BatchEncoder(images)
    alone = [encoder([[sample]])[0][0] for sample in samples]
    for cut in (1, 5, 8, 22):
        first, second = encoder([samples[:cut], samples[cut:]])
        assert np.array_equal(np.concatenate([first, second]), alone)
    assert np.allclose(images.encode(torch.from_numpy(noise)).numpy(), alone, atol=1e-5)


def test_texts_of_all_lengths_are_the_same_in_any_company_and_those_of_the_run(texts):
    said = [" ".join(["cat house red"] * n) + "." for n in (1, 2, 9, 1, 5, 30, 3, 2, 7, 1, 4)]
    samples = prepare_samples(texts, "texts", said, Limits())
    encoder = BatchEncoder(texts)
    alone = np.stack([encoder([[sample]])[0][0] for sample in samples])
    assert np.array_equal(encoder([samples])[0], alone)
    assert np.allclose(texts.encode(said).numpy(), alone, atol=1e-5)


def test_exact_neighbours_are_those_of_a_naive_search_alone_or_together():
    draw = np.random.default_rng(1)
    vectors, queries = draw.normal(size=(900, 16)).astype(np.float32), draw.normal(size=(45, 16)).astype(np.float32)
    search = ExactCosineSearch(vectors)
    scores = normalize_rows(queries).astype(np.float64) @ normalize_rows(vectors).astype(np.float64).T
    together = search([SearchRequest(queries[:40], 7), SearchRequest(queries[40:], 3)])
    for found, part, k in zip(together, (slice(0, 40), slice(40, 45)), (7, 3), strict=True):
        order = np.argsort(-scores[part], axis=1)[:, :k]
        assert np.array_equal(found.rows, order)
        assert np.allclose(found.scores, np.take_along_axis(scores[part], order, 1), atol=1e-6)
        alone = [search([SearchRequest(q[None], k)])[0] for q in queries[part]]
        assert np.array_equal(found.scores, np.concatenate([a.scores for a in alone]))
        assert np.array_equal(found.rows, np.concatenate([a.rows for a in alone]))


def test_equal_rows_stand_in_their_order_and_zeros_are_no_error():
    vectors = np.array([[1, 0], [0, 0], [1, 0], [0, 1]], dtype=np.float32)
    found = ExactCosineSearch(vectors)([SearchRequest(np.array([[2, 0]], dtype=np.float32), 4)])[0]
    assert found.rows.tolist() == [[0, 2, 1, 3]]
    assert found.scores.tolist() == [[1, 1, 0, 0]]


def test_jobs_that_wait_together_are_computed_together_and_a_failing_one_harms_nobody_else():
    sizes, gate = [], threading.Event()

    def double(payloads):
        gate.wait(10)
        sizes.append(len(payloads))
        return [2 * p for p in payloads]

    def invert(payloads):
        return [1 / p for p in payloads]

    worker = Worker(max_batch_rows=16, wait_seconds=0.5)
    first = worker.submit(double, 0, 100)  # closes its batch at once, and the gate holds the thread
    answers = [worker.submit(double, i, 1) for i in range(1, 17)]
    gate.set()
    assert [a.result(10) for a in answers] == [2 * i for i in range(1, 17)]
    assert (first.result(10), sizes) == (0, [1, 16])
    fine, broken, other = (worker.submit(invert, p, 1) for p in (2, 0, 4))
    with pytest.raises(ZeroDivisionError):
        broken.result(10)
    assert (fine.result(10), other.result(10)) == (0.5, 0.25)
    worker.stop()
    assert not worker.thread.is_alive()


def test_too_many_waiting_jobs_are_refused():
    gate = threading.Event()
    worker = Worker(max_batch_rows=1, max_queued_jobs=2)
    worker.submit(lambda p: [gate.wait(10)] * len(p), 0, 1)
    waiting = lambda: [worker.submit(lambda p: p, 0, 1) for _ in range(4)]
    with pytest.raises(RequestError, match="too many"):
        waiting()
    gate.set()
    worker.stop()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes whose header promises any number of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (bomb(8000, 8000), 413, "8,000 x 8,000"),
        (bomb(60000, 60000), 413, "pixels"),
        (b"no image", 422, "not a JPEG"),
        (b"", 422, "not a JPEG"),
        (png(np.arange(4096, dtype=np.uint16).astype(np.uint8).reshape(64, 64) ** 2)[:150], 422, "damaged"),
    ],
    ids=["bomb", "large bomb", "text", "empty", "cut off"],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_that_are_refused(images, data, status, said):
    with pytest.raises(RequestError, match=said) as caught:
        prepare_samples(images, "images", [data], Limits())
    assert caught.value.status == status


def test_images_of_any_kind_become_what_the_run_makes_of_files(images, tmp_path):
    colours = np.random.default_rng(3).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    for kind in ("PNG", "JPEG", "WEBP", "BMP"):
        file = io.BytesIO()
        Image.fromarray(colours).save(file, kind)
        path = tmp_path / f"picture.{kind.lower()}"
        path.write_bytes(file.getvalue())
        (sample,) = prepare_samples(images, "images", [file.getvalue()], Limits())
        assert np.allclose(images.encode([str(path)]).numpy(), BatchEncoder(images)([[sample]])[0], atol=1e-5)


def test_texts_that_are_refused(texts, images):
    for said, status in (("x" * 20_001, 413), ("  ", 422), ("\ud800", 422)):
        with pytest.raises(RequestError) as caught:
            prepare_samples(texts, "texts", [said], Limits())
        assert caught.value.status == status
    for trained in (images, None):
        with pytest.raises(RequestError, match="cannot embed texts"):
            prepare_samples(trained, "texts", ["a"], Limits())


def test_a_cache_is_believed_only_if_nothing_has_changed(tmp_path):
    table = np.arange(6.0).reshape(2, 3)
    cache = ArrayCache(tmp_path / "explorer", "stamp")
    assert cache.get("vectors") is None
    assert np.array_equal(cache.get_or_compute("vectors", lambda: table), table)
    assert np.array_equal(cache.get("vectors"), table)
    assert ArrayCache(tmp_path / "explorer", "other").get("vectors") is None
    path = tmp_path / "explorer" / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert cache.get("vectors") is None
    (tmp_path / "file").write_text("")
    ArrayCache(tmp_path / "file", "stamp").put("vectors", table)  # no folder to keep it in: no error


def test_npy_headers_that_promise_more_than_there_is_are_refused():
    file = io.BytesIO()
    np.save(file, np.zeros((3, 4), np.float32))
    assert _parse_npy(file.getvalue()).shape == (3, 4)
    for data in (file.getvalue()[:-4], file.getvalue().replace(b"(3, 4)", b"(9, 4)"), b"PK", file.getvalue().replace(b"<f4", b"|O4")):
        with pytest.raises(RequestError):
            _parse_npy(data)


def test_loopback_addresses():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "example.com", "10.0.0.1", "", "127.0.0.1.example.com")))


def status_of_guarded_post(limit: int, parts: list[bytes], **headers: str) -> int:
    """Send a body in parts to an app that reads all of it, through a guard with this limit. Return the status."""

    async def read_body(request: Request) -> Response:
        return Response(str(len(await request.body())))

    guard = GuardMiddleware(
        Starlette(routes=[Route("/", read_body, methods=["POST"])]), Limits(body_bytes=limit), token=None, loopback_only=False
    )
    messages = [{"type": "http.request", "body": part, "more_body": i < len(parts) - 1} for i, part in enumerate(parts)]
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": sent, "query_string": b""}
    answers = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        answers.append(message)

    asyncio.run(guard(scope, receive, send))
    return answers[0]["status"]


@pytest.mark.parametrize("cut", [1, 60, 100])
def test_the_body_limit_is_the_largest_body_that_passes(cut):
    body = bytes(101)
    whole, larger = [body[:cut], body[cut:100]], [body[:cut], body[cut:]]
    assert status_of_guarded_post(100, whole, transfer_encoding="chunked") == 200
    assert status_of_guarded_post(100, larger, transfer_encoding="chunked") == 413
    assert status_of_guarded_post(100, whole, content_length="100") == 200
    assert status_of_guarded_post(100, whole, content_length="101") == 413, "refused by its header alone"
