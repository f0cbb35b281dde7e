"""What an index costs: recall@10 and queries a second of exact, hnsw and ivf, beside FAISS used directly, in the same run.

    OMP_NUM_THREADS=1 python benchmarks/index.py [--seed 0 1 2] [--data clustered|gaussian] [--kind exact hnsw] [--n 100000] [--quick]

100,000 unit vectors of 128 dimensions, 1,000 queries in one call, cosine. `clustered`: 1,000 clusters of 16 dimensions each within
128, a little noise (what encoders make); `gaussian`: no structure at all, the worst there is. The neighbours that count are those of
a product of matrices in numpy. "raw" is FAISS with the same settings and nothing around it; rounds of both are interleaved, and the
median of the faster half counts, because other work on the machine only ever adds time. "after deletion": one row in a hundred is
deleted first, and recall is measured among the rest.

Prints a table and adds to benchmarks/results/index.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import add
from provenance import GENERATED, agrees, provenance

from nearfar.index import INDEX_TYPES, build_index, open_index
from nearfar.index.faiss_engines import HNSW_BUILD_CANDIDATES, HNSW_LINKS, HNSW_SEARCH_CANDIDATES, PROBED_CELL_FRACTION, compute_cell_count

WIDTH, QUERIES, K, ROUNDS = 128, 1_000, 10, 5


def vectors(kind: str, n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if kind == "gaussian":
        x = draw.normal(size=(n, WIDTH))
    else:
        count, inner = 1_000, 16
        of = draw.integers(count, size=n)
        centres, axes = draw.normal(size=(count, WIDTH)), draw.normal(size=(count, inner, WIDTH)) / np.sqrt(inner)
        x = centres[of] + 0.1 * draw.normal(size=(n, WIDTH))
        for c in range(count):
            x[of == c] += draw.normal(size=(int((of == c).sum()), inner)) @ axes[c]
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def truth(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    near = [np.argpartition(-(part @ x.T), K, axis=1)[:, :K] for part in np.array_split(q, 20)]
    return np.concatenate(near)


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, true, strict=True)]) / K)


def raw_index(kind: str, x: np.ndarray) -> tuple[Any, Any]:
    """Build a FAISS index with nearfar's settings."""
    import faiss

    if kind == "exact":
        index, how = faiss.IndexFlatIP(WIDTH), None
    elif kind == "hnsw":
        index, how = (
            faiss.IndexHNSWFlat(WIDTH, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT),
            faiss.SearchParametersHNSW(efSearch=HNSW_SEARCH_CANDIDATES),
        )
        index.hnsw.efConstruction = HNSW_BUILD_CANDIDATES
    else:
        count = compute_cell_count(len(x))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(WIDTH), WIDTH, count, faiss.METRIC_INNER_PRODUCT)
        index.cp.spherical = True
        how = faiss.SearchParametersIVF(nprobe=round(PROBED_CELL_FRACTION * count))
        index.train(x)
    index.add(x)
    return index, how


def interleaved(*calls: Callable[[], Any]) -> list[float]:
    """Seconds of each."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            times[i].append(time.perf_counter() - began)
    return [statistics.median(sorted(t)[: (ROUNDS + 1) // 2]) for t in times]


def measure(kind: str, x: np.ndarray, q: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    began = time.perf_counter()
    raw, how = raw_index(kind, x)
    raw_built = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "index"
        began = time.perf_counter()
        build_index(x, None, out, index_type=kind)
        built = time.perf_counter() - began
        size = sum(f.stat().st_size for f in out.iterdir())
        began = time.perf_counter()
        index = open_index(out)
        opened = time.perf_counter() - began
        ours, theirs = interleaved(lambda: index.search(q, K), lambda: raw.search(q, K, params=how))
        row = {
            "kind": kind,
            "recall": recall(index.search(q, K).rows, true),
            "raw_recall": recall(raw.search(q, K, params=how)[1], true),
            "queries_per_s": len(q) / ours,
            "raw_queries_per_s": len(q) / theirs,
            "build_s": built,
            "raw_build_s": raw_built,
            "open_s": opened,
            "bytes_per_vector": size / len(x),
        }
        gone = np.arange(0, len(x), 100)
        index.delete(gone)
        left = np.setdiff1d(np.arange(len(x)), gone)
        row["recall_after_deletion"] = recall(index.search(q, K).rows, left[truth(x[left], q)])
        row["queries_per_s_after_deletion"] = len(q) / interleaved(lambda: index.search(q, K))[0]
    return row


def about(rows: list[dict[str, Any]]) -> dict[str, Any]:
    import faiss

    return {"faiss": faiss.__version__, "faiss_threads": faiss.omp_get_max_threads()}


def settings(kind: str) -> dict[str, Any]:
    """Return the settings of one kind of index."""
    of_kind = {
        "hnsw": {"links": HNSW_LINKS, "breadth": HNSW_SEARCH_CANDIDATES, "breadth_built": HNSW_BUILD_CANDIDATES},
        "ivf": {"probed": PROBED_CELL_FRACTION},
    }
    return {"kind": kind, "rounds": ROUNDS, **of_kind.get(kind, {})}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row was measured with today's constants of its kind of index."""
    return agrees(row, settings(row["kind"]))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data", choices=["clustered", "gaussian"], default="clustered")
    parser.add_argument("--kind", choices=INDEX_TYPES, nargs="+", default=list(INDEX_TYPES))
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="5,000 vectors, nothing is written")
    return parser


def main() -> None:
    given = parser().parse_args()
    n = 5_000 if given.quick else given.n
    for seed in given.seed:
        both = vectors(given.data, n + QUERIES, seed)
        x, q = both[:n], both[n:]
        true = truth(x, q)
        for kind in given.kind:
            what = {"data": given.data, "n": n, "d": WIDTH, "queries": QUERIES, "components": K, "seed": seed}
            row = {**what, **measure(kind, x, q, true)}
            print(
                f"{given.data:9} seed {seed} {kind:5}  recall {row['recall']:.4f} (raw {row['raw_recall']:.4f})  "
                f"{row['queries_per_s']:8,.0f} queries/s (raw {row['raw_queries_per_s']:8,.0f}; after deletion "
                f"{row['queries_per_s_after_deletion']:8,.0f}, recall {row['recall_after_deletion']:.4f})  "
                f"built in {row['build_s']:.1f} s (raw {row['raw_build_s']:.1f}), opened in {row['open_s']:.2f} s",
                flush=True,
            )
            if not given.quick:
                add("index", row | provenance(settings(kind), GENERATED), (*what, "kind"), about)


if __name__ == "__main__":
    main()
