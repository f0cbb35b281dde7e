"""Bulk embedding on a Ray cluster.

The workers encode the shards of the data.

    driver    opens the data, finds missing shards, passes their numbers to Ray Data
    worker    loads the run, opens the data, encodes a shard, writes it into FILE.shards/
    driver    joins the shards in order and removes them

A shard file is written completely or not at all. Its name holds the checksum of its bytes: 000017-9c56….npy.
If a worker dies, Ray gives its current shard to another worker. If the driver dies, written shards are kept,
and the same command computes only the missing shards. The vectors equal those of one process, bit for bit on
machines of one kind, because shards, batches and threads are the same.

Without RAY_ADDRESS in the environment the cluster is this machine alone. It listens on 127.0.0.1, ends with
the command and leaves nothing behind. With RAY_ADDRESS (a cluster started by `ray start`) the run, the data
and the folder of FILE must be on a file system that all machines share.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearfar import recipes
from nearfar.api.embedding_shards import ROWS_PER_BATCH, Shard, VectorTable, encode_shard, load_parts, split_into_shards
from nearfar.api.load import load
from nearfar.core import MissingExtra, NearfarError, UsageError
from nearfar.core.files import atomic_write, write_json
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.image_stores import hash_bytes
from nearfar.train.model import Model
from nearfar.version import __version__

logger = logging.getLogger("nearfar")
MAX_TRIES_PER_SHARD = 8
"""Largest number of attempts per shard. A shard that kills every worker (by memory use, for example) ends
the command."""
OBJECT_STORE_BYTES = 1 << 28
"""Bytes of Ray's shared memory. It holds shard numbers, and data that are not files."""


@dataclass(frozen=True)
class RayJob:
    """Settings of a worker.

    They are sent to each worker once.
    """

    run: str
    data: Any
    split: str
    folder: Path
    """Folder of the shards."""
    recipe: str | None
    device: str
    threads: int

    @staticmethod
    def from_model(model: Model, data: Any, split: str, target: Path) -> RayJob:
        """Build the job of a model.

        The model must have a run folder that workers can load.
        """
        if model.run_folder is None:
            raise UsageError("--engine ray needs a run in a folder, which its workers load: train with out=RUN")
        name = recipes.find_method(model.recipe).name
        if name.endswith(recipes.NO_FILE_SUFFIX):
            raise UsageError(f"--engine ray: its workers cannot load {name}: write that class into a file")
        own = name if recipes.is_user_recipe(name) else None
        if isinstance(data, (str, os.PathLike)) and os.path.exists(os.path.expanduser(data)):
            data = os.path.abspath(os.path.expanduser(data))
        folder = Path(os.path.abspath(f"{target}.shards"))
        return RayJob(os.path.abspath(model.run_folder.path), data, split, folder, own, model.device.type, torch.get_num_threads())


class ShardFolder:
    """Folder with the vectors of finished shards and `plan.json`, which identifies their source."""

    def __init__(self, path: Path):
        self.path = path

    def prepare(self, plan: dict[str, Any]) -> None:
        """Keep the shards of an equal plan.

        Remove those of another run, other data or another version.
        """
        file = self.path / "plan.json"
        if self.path.exists() and not file.is_file() and any(self.path.iterdir()):
            raise UsageError(f"{self.path} is the folder for shards, but holds other files: move it away")
        if file.is_file() and _read_plan(file) != plan:
            logger.warning("%s holds shards of another run, other data or other settings: computing them again", self.path)
            self.remove()
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as e:
            raise UsageError(f"cannot make {self.path} for the shards: {e.strerror}") from e
        write_json(file, plan)

        for old in self.path.glob("*.tries"):
            old.unlink()

    def count_try(self, number: int) -> None:
        """Record one more attempt of a shard.

        Raise if there were too many. Each attempt is one byte in a file. Ray itself would restart a failing
        worker without limit.
        """
        with open(self.path / f"{number:06d}.tries", "ab") as f:
            f.write(b".")
            if f.tell() > MAX_TRIES_PER_SHARD:
                raise NearfarError(
                    f"shard {number} was started {MAX_TRIES_PER_SHARD} times and never finished: its worker died (out of memory?)"
                )

    def write(self, number: int, vectors: VectorTable) -> None:
        """Write the vectors of a shard.

        The file name holds their checksum.
        """
        buffer = io.BytesIO()
        np.save(buffer, vectors, allow_pickle=False)
        data = buffer.getvalue()
        with atomic_write(self.path / f"{number:06d}-{hashlib.sha256(data).hexdigest()}.npy") as f:
            f.write(data)

    def find(self, number: int) -> bytes | None:
        """Return the bytes of a shard with a correct checksum.

        Remove damaged files.
        """
        for file in self.path.glob(f"{number:06d}-*.npy"):
            data = file.read_bytes()
            if file.stem.split("-")[1] == hashlib.sha256(data).hexdigest():
                return data
            logger.warning("%s is damaged: computing it again", file)
            file.unlink()
        return None

    def read(self, number: int) -> VectorTable:
        """Return the vectors of a finished shard.

        Raise if it is missing or damaged.
        """
        data = self.find(number)
        if data is None:
            raise NearfarError(f"shard {number} in {self.path} is gone or damaged: run the same command again to compute it")
        return np.load(io.BytesIO(data), allow_pickle=False)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path)


def embed_shards_with_ray(
    job: RayJob, model: Model, parts: list[Any], shards: list[Shard], num_workers: int | None, progress: ProgressCallback | None
) -> ShardFolder:
    """Encode all missing shards with Ray workers and return the folder of all shards."""
    ray = _ray()
    store = ShardFolder(job.folder)
    plan = _plan(job, model, parts)
    store.prepare(plan)
    missing = [i for i in range(len(shards)) if store.find(i) is None]
    if len(missing) < len(shards):
        logger.info("%d of %d shards already exist", len(shards) - len(missing), len(shards))
    rows = [shard.stop - shard.start for shard in shards]
    done, total = sum(rows) - sum(rows[i] for i in missing), sum(rows)
    if missing:
        with _cluster(ray, job, num_workers) as count, _one_line_errors(ray, store):
            for number in _mapped(ray, job, missing, min(count, len(missing)), plan):
                done += rows[number]
                if progress:
                    progress(done, total)
    return store


class _Worker:
    """A process of the cluster.

    It keeps the net and the data for all its shards.
    """

    def __init__(self, job: RayJob, plan: dict[str, Any]):
        self.job, self.plan = job, plan

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encode shards and return one error message for each, empty on success.

        User errors are returned as text. Ray would wrap an exception into a long trace and restart the
        worker.
        """
        said = []
        for number in map(int, batch["shard"]):
            try:
                self._make(number)
                said.append("")
            except NearfarError as e:
                said.append(str(e))
        return {"shard": batch["shard"], "error": np.array(said)}

    def _make(self, number: int) -> None:
        store = ShardFolder(self.job.folder)
        store.count_try(number)
        model, parts, shards = self._opened
        store.write(number, encode_shard(model, parts, shards[number]))

    @functools.cached_property
    def _opened(self) -> tuple[Model, list[Any], list[Shard]]:
        job = self.job
        torch.set_num_threads(job.threads)
        model = load(job.run, job.device, job.recipe)
        parts = load_parts(model, job.data, job.split)
        if _plan(job, model, parts) != self.plan:
            raise NearfarError(
                f"a worker found other weights at {job.run}, other data at {job.data} or other versions than the command did"
            )
        return model, parts, split_into_shards(parts)


def _plan(job: RayJob, model: Model, parts: list[Any]) -> dict[str, Any]:
    """Return the values that the vectors depend on.

    Equal plans have equal vectors.
    """
    assert model.run_folder is not None
    manifest = json.loads((model.run_folder.checkpoints_folder / f"step-{model.step:09d}" / "manifest.json").read_text())
    return {
        "weights": manifest["body"]["sha256"]["net.safetensors"],
        "data": [getattr(part, "fingerprint", None) or hash_bytes(part.ids.tobytes()) for part in parts],
        "rows": [len(part) for part in parts],
        "batch_size": ROWS_PER_BATCH,
        "shards": [shard.stop for shard in split_into_shards(parts)],
        "device": job.device,
        "threads": job.threads,
        "versions": {"nearfar": __version__, "torch": torch.__version__},
    }


def _read_plan(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError:
        return None


def _ray() -> Any:
    """Import Ray without usage statistics and console output.

    Ray sends no statistics, and its processes write to their logs only. A cluster of this machine alone
    listens on 127.0.0.1. Ray would otherwise replace this address by one that other machines can reach.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "RAY_ADDRESS" not in os.environ:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
        import ray.data
    except ImportError as e:
        raise MissingExtra("ray[data]", "ray", "--engine ray") from e
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, job: RayJob, workers: int | None) -> Iterator[int]:
    """Start or join the cluster and yield the number of workers.

    The cluster is that of RAY_ADDRESS, or this machine alone.
    """
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    with tempfile.TemporaryDirectory(prefix="nearfar-ray-", ignore_cleanup_errors=True) as scratch:
        if "RAY_ADDRESS" not in os.environ:
            cpus = max(os.cpu_count() or 1, (workers or 1) * job.threads)
            settings |= {"address": "local", "num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            settings |= {"_node_ip_address": "127.0.0.1", "_temp_dir": scratch}
        with _silent_stderr():
            ray.init(**settings)
        try:
            kind, each = ("GPU", 1) if job.device == "cuda" else ("CPU", job.threads)
            yield workers or max(1, int(ray.cluster_resources().get(kind, 1) // each))
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Suppress all output to stderr within the block, including output from C++ code."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _mapped(ray: Any, job: RayJob, missing: list[int], workers: int, plan: dict[str, Any]) -> Iterator[int]:
    """Encode the missing shards with Ray and yield the number of each finished shard."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    numbers = ray.data.from_items([{"shard": i} for i in missing], override_num_blocks=len(missing))
    resources = {"num_gpus": 1} if job.device == "cuda" else {"num_cpus": job.threads}
    pool = ray.data.ActorPoolStrategy(size=workers)
    written = numbers.map_batches(_Worker, fn_constructor_args=(job, plan), batch_size=1, compute=pool, **resources)
    for row in written.iter_rows():
        if row["error"]:
            raise NearfarError(f"{row['error']}. Finished shards are kept in {job.folder}")
        yield int(row["shard"])


@contextlib.contextmanager
def _one_line_errors(ray: Any, store: ShardFolder) -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayError as e:
        first = re.sub(r"\x1b\[\d+m", "", str(e).strip().splitlines()[0])
        raise NearfarError(
            f"a worker failed: {first}. Finished shards are kept in {store.path}: run the same command again to resume"
        ) from e
