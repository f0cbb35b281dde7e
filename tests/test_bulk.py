"""Bulk embedding: shards over real Ray workers, which are really killed; the vectors stay those of one process, bit for bit."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.api.embed import embed
from nearfar.api.embedding_shards import ROWS_PER_BATCH, ROWS_PER_SHARD, split_into_shards
from nearfar.api.ray_embedding import ShardFolder
from nearfar.core import NearfarError, UsageError

ROWS = 6 * ROWS_PER_SHARD + 700
"""Seven shards; the last one ends in a short batch."""


def start(*args: str | Path) -> subprocess.Popen:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-W", "error::DeprecationWarning:nearfar", "-m", "nearfar", "embed", *map(str, args)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, found):
    """What `found` finds, as soon as it finds anything."""
    limit = time.monotonic() + 240
    while not (value := found()):
        assert process.poll() is None, f"ended by itself: {process.communicate()}"
        assert time.monotonic() < limit
        time.sleep(0.01)
    return value


def parent(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)[1])


def descendants(root: int) -> list[int]:
    """Processes below `root`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = above = int(entry.name)
        while above not in (0, 1, root):
            above = parent(above)
        if above == root and pid != root:
            found.append(pid)
    return found


def title(pid: int) -> str:
    """What a process calls itself; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().strip("\0")
    except OSError:
        return ""


def workers(root: int) -> list[int]:
    return [pid for pid in descendants(root) if title(pid).startswith("ray::MapWorker")]


def listening(root: int) -> dict[str, str]:
    """Addresses, as the kernel writes them, that the processes from `root` down listen on, and who does."""
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]": line[1].split(":")[0] for line in lines if line[3] == "0A"}
    found = {}
    for pid in (root, *descendants(root)):
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                if (name := os.readlink(handle)) in sockets:
                    found[sockets[name]] = title(pid)
    return found


def finished(out: Path) -> int:
    return len(list(Path(f"{out}.shards").glob("0*-*.npy")))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run, images, and their vectors by one process."""
    folder = tmp_path_factory.mktemp("bulk")
    nearfar.fit("simclr", preset="tiny", steps=2, batch_size=32, out=folder / "run")
    np.save(folder / "many.npy", np.random.default_rng(0).integers(0, 256, (ROWS, 8, 8), dtype=np.uint8))
    embed(nearfar.load(folder / "run"), folder / "many.npy", folder / "one.npy")
    return folder


def test_one_process_writes_what_encode_gives(made):
    """Shards begin where batches begin: the vectors are those of `encode`, bit for bit."""
    assert ROWS_PER_SHARD % ROWS_PER_BATCH == 0
    whole = nearfar.load(made / "run").encode(np.load(made / "many.npy")).numpy()
    assert np.array_equal(np.load(made / "one.npy", allow_pickle=False), whole)


def test_shards_cover_every_row_once():
    parts = [range(ROWS_PER_SHARD), range(ROWS_PER_SHARD + 1), range(3)]
    rows = [(s.part, i) for s in split_into_shards(parts) for i in range(s.start, s.stop)]
    assert rows == [(p, i) for p, part in enumerate(parts) for i in part]
    assert all(s.start % ROWS_PER_BATCH == 0 for s in split_into_shards(parts))


@pytest.mark.slow
def test_a_killed_driver_and_a_killed_worker_change_nothing(made):
    pytest.importorskip("ray")
    out = made / "many-vectors.npy"
    command = [made / "run", "--data", made / "many.npy", "--out", out, "--engine", "ray", "--num-workers", 2]
    first = start(*command)
    wait_for(first, lambda: finished(out) >= 2)
    orphans, open_to = workers(first.pid), listening(first.pid)
    assert orphans
    first.kill()
    first.communicate()
    assert open_to
    assert all(address.endswith("0100007F") for address in open_to), f"not 127.0.0.1: {open_to}"
    assert not out.exists(), "a file that is not whole does not appear"
    limit = time.monotonic() + 60
    while any(map(title, orphans)):  # they may write their shards until they notice
        assert time.monotonic() < limit, "workers end with their driver"
        time.sleep(0.1)
    kept = finished(out)
    assert 2 <= kept < 7

    damaged = next(Path(f"{out}.shards").glob("0*-*.npy"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    second = start(*command)
    at_work = wait_for(second, lambda: [pid for pid in workers(second.pid) if title(pid).endswith(".submit")])
    os.kill(at_work[0], signal.SIGKILL)
    said, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert f"{ROWS:,} vectors" in said
    assert f"{kept - 1} of 7 shards already exist" in err
    assert "is damaged: computing it again" in err
    assert out.read_bytes() == (made / "one.npy").read_bytes()
    assert not Path(f"{out}.shards").exists(), "nothing is left beside the result"
    assert not re.search(r"ray|Traceback|[A-Z]\w*Warning", err.replace(str(made), "")), f"Ray is quiet: {err}"


def test_shards_of_other_plans_are_dropped_and_other_folders_are_not(tmp_path, caplog):
    store = ShardFolder(tmp_path / "v.npy.shards")
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    store.prepare({"weights": "a"})
    store.write(0, vectors)
    store.prepare({"weights": "a"})
    assert np.array_equal(store.read(0), vectors)
    with caplog.at_level(logging.WARNING, "nearfar"):
        store.prepare({"weights": "b"})
    assert "another run" in caplog.text
    with pytest.raises(NearfarError, match=r"shard 0 .* again to compute it"):
        store.read(0)
    (tmp_path / "mine.shards").mkdir()
    (tmp_path / "mine.shards" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds other files"):
        ShardFolder(tmp_path / "mine.shards").prepare({"weights": "a"})


def test_a_shard_that_kills_every_worker_ends_the_command(tmp_path):
    store = ShardFolder(tmp_path / "shards")
    store.prepare({})
    for _ in range(8):
        store.count_try(3)
    with pytest.raises(NearfarError, match="shard 3 was started 8 times"):
        store.count_try(3)
    store.prepare({})
    store.count_try(3)


def test_mistakes(made, tmp_path):
    trained = nearfar.load(made / "run")
    with pytest.raises(UsageError, match="--num-workers is for --engine ray"):
        embed(trained, "digits", tmp_path / "v.npy", num_workers=2)
    untold = nearfar.fit("simclr", preset="tiny", steps=1, batch_size=16)
    with pytest.raises(UsageError, match="needs a run in a folder"):
        embed(untold, "digits", tmp_path / "v.npy", engine="ray")
