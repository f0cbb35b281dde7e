"""Two-dimensional maps of all points of an embedding.

    python -m nearfar.server.explorer.maps VECTORS.npy OUT.npy METHOD SEED

This command runs in a separate process and prints its progress line by line. The loops of the map libraries
occupy a whole process for minutes at 100,000 points. The server continues to respond meanwhile.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from nearfar.core.errors import MissingExtra, NearfarError, UsageError
from nearfar.server.explorer.tasks import ReportProgress

MAP_PACKAGES = {"pacmap": "pacmap", "tsne": "openTSNE", "umap": "umap", "pca": "numpy"}
"""Package of each map method. PaCMAP preserves global and local structure. It takes seconds, t-SNE takes
minutes."""
INSTALL_NAMES = {"openTSNE": "opentsne", "umap": "umap-learn"}
MIN_POINTS = 16
"""Fewest points for other methods than PCA. The other methods need more neighbors than smaller data have."""
ITERATIONS = {"pacmap": 450, "tsne": 750}


def list_map_methods() -> list[str]:
    """Return the available map methods, best first."""
    return [name for name, package in MAP_PACKAGES.items() if find_spec(package) is not None]


def resolve_map_method(method: str) -> str:
    """Return the name of an available map method.

    "auto" selects the best one.

    Raises:
        UsageError: if the method is unknown.
        MissingExtra: if the package of the method is not installed.
    """
    if method == "auto":
        return list_map_methods()[0]
    if method not in MAP_PACKAGES:
        raise UsageError(f"unknown map {method!r}: choose one of {', '.join(MAP_PACKAGES)} or auto")
    if method not in list_map_methods():
        package = MAP_PACKAGES[method]
        raise MissingExtra(INSTALL_NAMES.get(package, package), "maps", f"the map {method!r}")
    return method


def compute_map(vectors: Float[np.ndarray, "n d"], method: str, seed: int) -> Float32[np.ndarray, "n 2"]:
    """Compute a map of all rows, centered, with a larger half width of 1."""
    found = _pca(vectors) if len(vectors) < MIN_POINTS else _MAP_FUNCTIONS[method](np.ascontiguousarray(vectors, dtype=np.float32), seed)
    centred = found - found.mean(0)
    return (centred / max(float(np.abs(centred).max()), 1e-12)).astype(np.float32)


def _pca(vectors: np.ndarray, seed: int = 0) -> np.ndarray:
    """Project onto the two directions of largest variance.

    The sign of each direction makes its largest loading positive.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    first = directions[:, ::-1][:, :2]
    first = first * np.sign(np.take_along_axis(first, np.abs(first).argmax(0)[None], 0))
    found = centred @ first
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def _pacmap(vectors: np.ndarray, seed: int) -> np.ndarray:
    import pacmap

    neighbours = min(10, len(vectors) // 2)
    drawing = pacmap.PaCMAP(n_components=2, n_neighbors=neighbours, random_state=seed, verbose=True)
    return np.asarray(drawing.fit_transform(vectors, init="pca"))


def _tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    from openTSNE import TSNE

    steps = iter(range(0, 10**9, 25))
    say: Any = lambda iteration, error, embedding: print(f"Iteration: {next(steps)}", flush=True)
    perplexity: Any = min(30.0, (len(vectors) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, random_state=seed, callbacks=say, callbacks_every_iters=25, n_jobs=1).fit(vectors))


def _umap(vectors: np.ndarray, seed: int) -> np.ndarray:
    from umap import UMAP

    return np.asarray(UMAP(n_neighbors=min(15, len(vectors) - 1), random_state=seed, n_jobs=1).fit_transform(vectors))


_MAP_FUNCTIONS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"pacmap": _pacmap, "tsne": _tsne, "umap": _umap, "pca": _pca}


class MapProcess:
    """Computation of a map in a separate process."""

    def __init__(self):
        self.process: subprocess.Popen | None = None
        self.stopped = False

    def __call__(
        self, vectors: Float[np.ndarray, "n d"], method: str, seed: int, report_progress: ReportProgress
    ) -> Float32[np.ndarray, "n 2"]:
        with tempfile.TemporaryDirectory(prefix="nearfar-") as folder:
            source, target = Path(folder) / "vectors.npy", Path(folder) / "map.npy"
            np.save(source, vectors, allow_pickle=False)
            if self.stopped:
                raise NearfarError("the server is stopping")
            command = [sys.executable, "-m", "nearfar.server.explorer.maps", str(source), str(target), method, str(seed)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if said := re.match(r"Iteration:\s+(\d+)", line):
                    report_progress(min(int(said[1]) / ITERATIONS.get(method, 1), 1.0))
            problem = self.process.communicate()[1]
            if self.process.returncode:
                raise NearfarError(f"the map {method} could not be drawn: {(problem.strip().splitlines() or ['stopped'])[-1]}")
            return np.load(target, allow_pickle=False)

    def stop(self) -> None:
        """Stop the process."""
        self.stopped = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def compute_map_in_process() -> None:
    """Compute a map from the command-line arguments and save it."""
    source, target, method, seed = sys.argv[1:]
    np.save(target, compute_map(np.load(source, allow_pickle=False), method, int(seed)), allow_pickle=False)


if __name__ == "__main__":
    compute_map_in_process()
