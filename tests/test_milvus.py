"""Milvus, as a file and as a real server: the same answers as FAISS's exact search, the same interface."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_index import naive, table

from nearfar.core import MissingExtra, NearfarError, UsageError
from nearfar.index import METRICS, ModelIdentity, RowTable, build_index, check_index_target, open_index
from nearfar.index.milvus_address import MilvusStore, is_milvus_store, parse_milvus_store
from nearfar.index.milvus_index import MilvusIndex

pytestmark = pytest.mark.slow
NAMES = ["plain.png", 'with "quotes"', "back\\slash", "zwölf 漢字", "new\nline", "twice", "twice"]


EXACT = [(metric, "exact") for metric in METRICS]
PAIRS = [("cosine", "exact"), ("dot", "hnsw")]
"""With the ivf and l2 of `_check_changes` every kind and metric once: a server takes seconds to load a collection."""


def check_contract(where: str, pairs: list[tuple[str, str]]) -> float:
    """Everything an index promises, at any store. Returns the largest difference of scores from FAISS's exact search."""
    x, q = np.split(table(620), [600])
    differences = [0.0]
    for metric, kind in pairs:
        index = build_index(x, None, where, metric=metric, index_type=kind, overwrite=True)
        found, true = index.search(q, 10), build_index(x, None, None, metric=metric, index_type="exact").search(q, 10)
        if kind == "exact":
            assert (found.rows == true.rows).all()
        recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found.rows, true.rows, strict=True)]) / 10
        assert recall > 0.9, (metric, kind, recall)
        differences += np.abs(found.scores - true.scores)[found.rows == true.rows].tolist()
        assert isinstance(index, MilvusIndex)
        index.close()
    _check_changes(where)
    return max(differences)


def _check_changes(where: str) -> None:
    x, more = np.split(table(len(NAMES) + 3), [len(NAMES)])
    pictures = [b"\x89PNG\x00\xff", *[None] * (len(NAMES) - 1)]
    items = RowTable.from_columns(NAMES, ["cat", *[None] * 6], ["é" * 9000, *[None] * 6], [Path("/a/\udce9"), *[None] * 6], pictures)
    index = build_index(x, items, where, metric="l2", index_type="ivf", model=ModelIdentity("run", "f" * 64), overwrite=True)
    assert (len(index), index.dim, index.metric, index.next_row) == (7, 12, "l2", 7)
    with pytest.raises(UsageError, match=r"2 samples named 'twice': choose one by its row \(5, 6\)"):
        index.delete("twice")
    assert [index.resolve_row(name) for name in NAMES[:5]] == [0, 1, 2, 3, 4]
    assert index.describe_rows([3, 0]) == [
        {"name": NAMES[3], "row": 3, "label": None},
        {"name": NAMES[0], "row": 0, "label": "cat", "text": "é" * 8000 + "…", "path": "/a/\udce9"},
    ]
    assert index.read_thumbnails([1, 0]) == [None, pictures[0]]
    assert index.read_vectors([4, 2]) == pytest.approx(x[[4, 2]])
    assert index.delete([NAMES[1], "row:6", 2]).tolist() == [1, 2, 6]
    index.close()
    index = open_index(where)
    assert index.model_identity == ModelIdentity("run", "f" * 64)
    assert len(index) == 4
    assert index.add(more, ["a", "b", "c"]).tolist() == [7, 8, 9], "the number of a deleted last row is not given again"
    with pytest.raises(UsageError, match=r"row 6 of .* was deleted"):
        index.describe_rows([6])
    with pytest.raises(UsageError, match="does not exist: rows are 0 to 9"):
        index.read_vectors([10])
    expected = {row: x[row] for row in (0, 3, 4, 5)} | dict(zip((7, 8, 9), more, strict=True))
    hits = index.search(more, 100)
    for query, scores, rows in zip(more, hits.scores, hits.rows, strict=True):
        assert rows.tolist() == [row for _, row in naive(expected, query, 100, "l2")]
        assert scores == pytest.approx([score for score, _ in naive(expected, query, 100, "l2")], abs=1e-3)
    with pytest.raises(UsageError, match="already holds an index"):
        check_index_target(where)
    with pytest.raises(UsageError, match="at most 16,384"):
        index._search(more, 20_000)
    index._write_state(complete=False)
    index.close()
    with pytest.raises(NearfarError, match="was never finished"):
        open_index(where)


def test_milvus_lite_keeps_the_contract(tmp_path):
    assert check_contract(str(tmp_path / "file.db"), [*EXACT, *PAIRS[1:]]) < 1e-4


SERVER = """
import sys
from milvus import MilvusServer, MilvusServerConfig
server = MilvusServer(MilvusServerConfig(data_dir=sys.argv[1]))
server.start()
try:
    from test_milvus import PAIRS, check_contract
    print(check_contract(f"http://127.0.0.1:{server.listen_port}/contract", PAIRS))
finally:
    server.stop()
"""


def namespace() -> list[str]:
    """A command that runs another in a network of its own, or a skip: the server listens on all addresses there are."""
    if shutil.which("unshare") and shutil.which("ip"):
        for flags in ("-n", "-rn"):
            command = ["unshare", flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
    pytest.skip("a Milvus server listens on all addresses, and no network namespace can be made here to keep it in")


def test_a_milvus_server_keeps_the_contract(tmp_path):
    if importlib.util.find_spec("milvus") is None:
        pytest.skip("no Milvus server: pip install milvus==2.3.5")
    (tmp_path / "server.py").write_text(SERVER)
    command = [*namespace(), sys.executable, str(tmp_path / "server.py"), str(tmp_path / "data")]
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{Path(__file__).parent}:{Path(__file__).parent.parent}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(done.stdout.splitlines()[-1]) < 1e-4


def test_a_strangers_collection_is_never_replaced(tmp_path):
    from pymilvus import MilvusClient

    client = MilvusClient(str(tmp_path / "theirs.db"))
    client.create_collection("nearfar", dimension=3)
    client.insert("nearfar", [{"id": 1, "vector": [1.0, 2.0, 3.0]}])
    client.close()
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="that nearfar did not create"):
            build_index(table(5), None, tmp_path / "theirs.db", overwrite=overwrite)
    with pytest.raises(UsageError, match="has no nearfar index"):
        open_index(tmp_path / "theirs.db")
    client = MilvusClient(str(tmp_path / "theirs.db"))
    client.load_collection("nearfar")
    assert client.get("nearfar", ids=[1])[0]["vector"] == [1.0, 2.0, 3.0]


def test_names_of_stores():
    assert [is_milvus_store(s) for s in ("a.db", Path("x/a.db"), "http://h:1", "https://h", "folder", "a.database")] == [True] * 4 + [
        False
    ] * 2
    assert parse_milvus_store("http://u:p@host:19530/photos") == MilvusStore("http://host:19530", "photos", "u:p")
    assert parse_milvus_store("https://host") == MilvusStore("https://host", "nearfar", "")
    with pytest.raises(UsageError, match="not a valid collection name"):
        parse_milvus_store("http://host/a-b")


def test_mistakes_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no such file"):
        open_index(tmp_path / "none.db")
    with pytest.raises(UsageError, match="there is no folder"):
        check_index_target(tmp_path / "no" / "such.db")
    with pytest.raises(NearfarError, match=r"the Milvus store http://127.0.0.1:9") as e:
        open_index("http://127.0.0.1:9")
    assert "\n" not in str(e.value)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtra, match=r"pip install 'nearfar\[milvus\]'"):
        build_index(table(5), None, tmp_path / "x.db")
