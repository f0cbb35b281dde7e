"""The server under load: what HTTP costs beyond FAISS, and whether 64 clients for a minute lose anything.

    python benchmarks/serve.py [--part index|run|load] [--seconds 60]

Search: 100,000 vectors of 128 numbers, exact, one thread on both sides; requests of 1,000 queries as bare float32, answers as bare
hits (k = 10), against `faiss.IndexFlatIP.search` with the same queries in this process. Rounds are interleaved; the ratio is that
of the medians. On a busy machine the ratio of the processors' time says more than that of the clock.

Load: 64 clients, each with one connection, ask for embeddings and neighbours of images (1 to 5 in a request) and of rows; every
answer is compared, byte by byte, with the one that a single client got before.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import check_row, stored, write
from PIL import Image
from provenance import GENERATED, agrees, provenance

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from serving import Server, ask, serving, small_run

from nearfar.core import RandomKey
from nearfar.server.neighbors import normalize_rows

ROWS, DIM, QUERIES, K, ROUNDS = 100_000, 128, 1000, 10, 9
CLIENTS = 64
SECONDS = 60.0
PARTS = ("index", "run", "load")
FLOATS = "application/octet-stream"


def an_index(folder: Path) -> tuple[Path, list[str], np.ndarray]:
    """An exact index of keyed vectors: (what to serve, flags, its vectors)."""
    from nearfar.index import build_index

    vectors = RandomKey(0)("benchmark", "serve").normal(np.arange(ROWS), DIM)
    index = build_index(vectors, None, folder / "index", index_type="exact")
    return folder / "index", [], index.read_vectors(np.arange(ROWS))


def a_run(folder: Path) -> tuple[Path, list[str], np.ndarray]:
    """A run that serves 100,000 small images, embedded by the server when it starts."""
    pixels = RandomKey(0)("benchmark", "images").integers(np.arange(ROWS), 256, 64).astype(np.uint8).reshape(ROWS, 8, 8)
    np.save(folder / "images.npy", pixels)
    return small_run(folder / "large"), ["--data", str(folder / "images.npy")], np.zeros(0)


def search_ratio(path: Path, flags: list[str], vectors: np.ndarray) -> dict[str, Any]:
    """Search over HTTP and in this process, and return rates and their ratio."""
    import faiss

    faiss.omp_set_num_threads(1)
    times: dict[str, list[float]] = {"faiss": [], "served": []}
    work: dict[str, list[float]] = {"faiss": [], "served": []}
    with serving(path, "--map", "pca", *flags, token=None) as server, contextlib.closing(server.connect()) as connection:
        if not len(vectors):
            vectors = normalize_rows(np.load(path / "explorer" / "vectors.npy", allow_pickle=False))
        raw, queries = faiss.IndexFlatIP(vectors.shape[1]), np.ascontiguousarray(vectors[:QUERIES] + np.float32(0.01))
        raw.add(vectors)
        for _ in range(ROUNDS + 1):
            began, busy = time.perf_counter(), time.process_time()
            raw.search(queries, K)
            times["faiss"].append(time.perf_counter() - began)
            work["faiss"].append(time.process_time() - busy)
            began, busy = time.perf_counter(), cpu_seconds(server.process.pid)
            status, answer = ask(connection, "POST", f"/search?k={K}", queries.tobytes(), None, content_type=FLOATS, accept=FLOATS)
            times["served"].append(time.perf_counter() - began)
            work["served"].append(cpu_seconds(server.process.pid) - busy)
            assert (status, len(answer)) == (200, 12 * K * QUERIES)
    per_second = {name: QUERIES / statistics.median(found[1:]) for name, found in times.items()}  # the first round warms up
    cpu = {name: statistics.mean(found[1:]) for name, found in work.items()}
    return {
        "queries_per_second": per_second,
        "ratio": per_second["served"] / per_second["faiss"],
        "cpu_seconds_a_request": cpu,
        "cpu_ratio": cpu["faiss"] / cpu["served"],
        "wanted": 0.7,
    }


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def png(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def load(folder: Path, seconds: float) -> dict[str, Any]:
    pictures = [png(p) for p in np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)]
    asked: list[tuple[str, dict]] = []
    for i in range(12):
        some = pictures[i : i + 1 + i % 5]
        asked += [("/embed", {"images": some}), ("/search", {"images": some, "k": 10}), ("/search", {"rows": [i, 50 + i], "k": 5})]
    with serving(small_run(folder / "run"), "--map", "pca", token=None) as server:
        serial = [server.ask("POST", path, body, None) for path, body in asked]
        began = time.perf_counter()
        counts, waits = _together(server, asked, serial, seconds)
        passed = time.perf_counter() - began
        text = server.ask("GET", "/metrics", token=None)[1].decode()
    numbers = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    waits.sort()
    return {
        "clients": CLIENTS,
        "seconds": passed,
        "answered": counts["answered"],
        "different": counts["different"],
        "lost": counts["lost"],
        "requests_per_second": counts["answered"] / passed,
        "milliseconds": {f"p{p}": 1e3 * waits[min(len(waits) * p // 100, len(waits) - 1)] for p in (50, 95, 99)},
        "requests_in_a_batch": numbers["nearfar_batched_requests_total"] / numbers["nearfar_batches_total"],
    }


def _together(server: Server, asked: list, serial: list, seconds: float) -> tuple[dict[str, int], list[float]]:
    counts, waits, ends = {"answered": 0, "different": 0, "lost": 0}, [], time.monotonic() + seconds
    lock = threading.Lock()

    def client(number: int) -> None:
        sent = 0
        with contextlib.closing(server.connect()) as connection:
            while time.monotonic() < ends:
                at = (number + 7 * sent) % len(asked)
                began = time.perf_counter()
                try:
                    same = ask(connection, "POST", *asked[at], None) == serial[at]
                except OSError:
                    with lock:
                        counts["lost"] += 1
                    connection.close()
                    continue
                sent += 1
                with lock:
                    waits.append(time.perf_counter() - began)
                    counts["answered"] += 1
                    counts["different"] += not same

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, waits


def settings(part: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the settings of one part."""
    if part == "load":
        return {"clients": CLIENTS, "seconds": seconds}
    return {"rows": ROWS, "dim": DIM, "queries": QUERIES, "k": K, "rounds": ROUNDS, "threads": 1}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored part has today's settings."""
    return any(agrees(row, settings(part)) for part in PARTS)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, help="measure one part; the others stay as the file has them")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    return parser


def main() -> None:
    given = parser().parse_args()
    found = stored("serve")
    parts = {
        "index": lambda folder: search_ratio(*an_index(folder)),
        "run": lambda folder: search_ratio(*a_run(folder)),
        "load": lambda folder: load(folder, given.seconds),
    }
    for name in [given.part] if given.part else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = parts[name](Path(folder)) | {"load_average": os.getloadavg()[0]}
        found[name] |= provenance(settings(name, given.seconds), GENERATED)
        check_row("serve", found[name])
        print(name, json.dumps(found[name]))
    print(f"written to {write('serve', found)}")


if __name__ == "__main__":
    main()
