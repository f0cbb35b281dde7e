"""Indexes against a naive oracle: what is found, what is deleted, what is refused."""

from __future__ import annotations

import ast
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import DiskLog

import nearfar.index
from nearfar.api.search import load_index_model
from nearfar.core import NearfarError, UsageError
from nearfar.index import INDEX_TYPES, METRICS, ModelIdentity, RowTable, build_index, check_index_target, open_index, read_query
from nearfar.index.faiss_engines import choose_index_type
from nearfar.index.index_folder import lock_index_folder


def table(n: int = 400, d: int = 12, seed: int = 0) -> np.ndarray:
    """Forty clusters: neighbors that an approximate search can be asked for."""
    draw = np.random.default_rng(seed)
    return (draw.normal(size=(40, d))[draw.integers(40, size=n)] + 0.3 * draw.normal(size=(n, d))).astype(np.float32)


def naive(vectors: dict[int, np.ndarray], query: np.ndarray, k: int, metric: str) -> list[tuple[float, int]]:
    """(score, row) of the k nearest, in plain Python and double precision."""
    found = []
    for row, vector in vectors.items():
        a, b = vector.astype(float), query.astype(float)
        if metric == "l2":
            found.append((float(np.sqrt(((a - b) ** 2).sum())), row))
        else:
            long = np.linalg.norm(a) * np.linalg.norm(b) if metric == "cosine" else 1.0
            found.append((-float(a @ b) / long, row))
    return [(score if metric == "l2" else -score, row) for score, row in sorted(found)[:k]]


@pytest.mark.parametrize("metric", METRICS)
def test_exact_search_is_that_of_a_loop(metric, tmp_path):
    x, q = table(), table(5, seed=1)
    build_index(x, None, tmp_path / "index", metric=metric)
    index = open_index(tmp_path / "index")
    hits = index.search(q, 7)
    assert hits.scores.shape == hits.rows.shape == (5, 7)
    for query, scores, rows in zip(q, hits.scores, hits.rows, strict=True):
        expected = naive(dict(enumerate(x)), query, 7, metric)
        assert rows.tolist() == [row for _, row in expected]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
@pytest.mark.parametrize("metric", METRICS)
def test_approximate_search_finds_nearly_what_exact_search_finds(kind, metric):
    x, q = np.split(table(3050), [3000])
    found = build_index(x, None, None, index_type=kind, metric=metric).search(q, 10)
    true = build_index(x, None, None, index_type="exact", metric=metric).search(q, 10)
    recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found.rows, true.rows, strict=True)]) / 10
    assert recall > (0.99 if kind == "hnsw" else 0.7)
    same = found.rows == true.rows
    assert np.abs(found.scores - true.scores)[same].max() < 1e-4


@pytest.mark.parametrize("kind", INDEX_TYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_adding_deleting_and_opening_again_in_any_order(kind, metric, tmp_path):
    """Against a dict of what must be there. All rows are asked for, so that approximate kinds must find each of them too."""
    draw = np.random.default_rng(3)
    x = table(60)
    expected = dict(enumerate(x))
    index = build_index(x, None, tmp_path / "index", index_type=kind, metric=metric)
    given = 60
    for step in range(9):
        if step % 3 == 0:
            gone = draw.choice(sorted(expected), 12, replace=False)
            assert sorted(index.delete(gone)) == sorted(gone)
            expected = {row: v for row, v in expected.items() if row not in gone}
        elif step % 3 == 1:
            more = table(10, seed=step)
            assert index.add(more, None).tolist() == list(range(given, given + 10)), "numbers are never given twice"
            expected |= dict(zip(range(given, given + 10), more, strict=True))
            given += 10
        else:
            index = open_index(tmp_path / "index")
        assert len(index) == len(expected)
        query = table(3, seed=99)
        hits = index.search(query, 1000)
        for one, scores, rows in zip(query, hits.scores, hits.rows, strict=True):
            assert sorted(rows) == sorted(expected)
            assert scores == pytest.approx([score for score, _ in naive(expected, one, 1000, metric)], abs=1e-4)
        row = int(rows[0])
        assert index.describe_rows([row]) == [{"name": f"row {row}", "row": row, "label": None}]
        scale = np.linalg.norm(expected[row]) if metric == "cosine" else 1
        assert index.read_vectors([row])[0] == pytest.approx(expected[row] / scale, abs=1e-6)
    index.delete(sorted(expected))
    assert len(open_index(tmp_path / "index")) == 0
    assert index.search(query, 5).rows.shape == (3, 0)


def test_a_graph_with_most_rows_deleted_still_finds_k():
    x = table(2000)
    index = build_index(x, None, None, index_type="hnsw")
    left = np.arange(0, 2000, 50)
    index.delete(np.setdiff1d(np.arange(2000), left))
    hits = index.search(x[:20], 10)
    assert np.isin(hits.rows, left).all()
    assert [sorted(rows) for rows in hits.rows] == [sorted(left[np.argsort(-_cosine(x[left], q))[:10]]) for q in x[:20]]


@pytest.mark.parametrize("metric", METRICS)
def test_cells_with_too_few_rows_still_give_k_neighbors(metric):
    """The cells that a query looks into hold about a third of the rows, and two thirds are asked for."""
    x, q = np.split(table(1010), [1000])
    index = build_index(x, None, None, index_type="ivf", metric=metric)
    hits = index.search(q, 700)
    probed = index.engine.faiss_index.search(q, 700)[1]
    assert (probed < 0).any(axis=1).all(), "FAISS alone marks missing neighbors by row -1"
    for query, scores, rows in zip(q, hits.scores, hits.rows, strict=True):
        expected = naive(dict(enumerate(x)), query, 700, metric)
        assert set(rows.tolist()) == {row for _, row in expected}
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


def _cosine(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return x @ q / np.linalg.norm(x, axis=1) / np.linalg.norm(q)


def test_items_are_named_labelled_and_forgotten(tmp_path):
    names = ["a.png", "b\udce9.png", "twice", "twice"]
    items = RowTable.from_columns(
        names, ["cat", None, "dog", "dog"], ["secret words", "two", "three", "four"], [Path("/x/a"), None, None, None]
    )
    index = build_index(table(4), items, tmp_path / "index")
    assert index.describe_rows([0]) == [{"name": "a.png", "row": 0, "label": "cat", "text": "secret words", "path": "/x/a"}]
    assert index.describe_rows([3, 1])[1] == {"name": "b\\udce9.png", "row": 1, "label": None, "text": "two"}
    with pytest.raises(UsageError, match=r"2 samples named 'twice': choose one by its row \(2, 3\)"):
        index.delete("twice")
    with pytest.raises(UsageError, match="no sample named 'zebra'"):
        index.delete(["a.png", "zebra"])
    assert len(index) == 4, "nothing is deleted if one of the names is wrong"
    assert index.delete(["a.png", "row:2", 3]).tolist() == [0, 2, 3]
    again = open_index(tmp_path / "index")
    assert not any(b"secret words" in f.read_bytes() for f in (tmp_path / "index").iterdir())
    with pytest.raises(UsageError, match=r"row 0 of .* was deleted"):
        again.describe_rows([0])
    with pytest.raises(UsageError, match=r"row 9 of .* does not exist: rows are 0 to 3"):
        again.read_vectors([9])
    assert again.add(table(1), ["new"]).tolist() == [4]


def test_a_number_that_is_a_name_too_is_not_taken_for_a_row():
    """Nodes of an edge list are called by numbers, and stand on other rows."""
    index = build_index(table(5), ["3", "0", "2", "name:1", "77"], None)
    for asked in ("3", "0", "77"):
        with pytest.raises(UsageError, match=f"{asked} can mean row {asked} .*: use row:{asked} or name:{asked}"):
            index.delete(asked)
        with pytest.raises(UsageError, match=f"use row:{asked} or name:{asked}"):
            read_query(asked, index, lambda: load_index_model(index))
    assert len(index) == 5
    assert [index.resolve_row(asked) for asked in ("2", "1", 3, "row:3", "name:3", "name:name:1")] == [2, 1, 3, 3, 0, 3]
    assert read_query("name:77", index, lambda: load_index_model(index)).row == 4
    with pytest.raises(UsageError, match="no sample named '5'"):
        index.delete("name:5")
    assert index.delete(["name:3", "row:1"]).tolist() == [0, 1]
    assert index.delete("3").tolist() == [3], "nobody is called 3 any more"


def test_wrong_vectors_are_refused():
    x = table(20)
    index = build_index(x, None, None)
    with pytest.raises(UsageError, match="queries have 5 values each; the vectors of this index have 12"):
        index.search(np.zeros((1, 5), np.float32), 3)
    with pytest.raises(UsageError, match="row 1 has a value that is not a finite number"):
        index.add(np.array([[0.0] * 12, [np.nan] * 12], np.float32))
    with pytest.raises(UsageError, match="--k must be at least 1"):
        index.search(x, 0)
    with pytest.raises(UsageError, match="20 vectors, but 3 samples"):
        build_index(x, ["a", "b", "c"], None)
    with pytest.raises(UsageError, match="no vectors"):
        build_index(x[:0], None, None)
    with pytest.raises(UsageError, match="--metric must be one of cosine, dot, l2"):
        build_index(x, None, None, metric="euclid")
    with pytest.raises(UsageError, match="--index-type must be one of exact, hnsw, ivf"):
        build_index(x, None, None, index_type="tree")


def test_a_zero_vector_is_alike_to_nothing_and_large_ones_do_not_overflow():
    index = build_index(np.array([[0, 0], [3e30, 0], [0, 1e-30]], np.float32), None, None)
    hits = index.search(np.array([[2e30, 2e30], [0, 0]], np.float32), 3)
    assert hits.scores[0] == pytest.approx([np.sqrt(0.5), np.sqrt(0.5), 0], abs=1e-6)
    assert hits.scores[1].tolist() == [0, 0, 0]


def test_the_kind_follows_the_number_of_vectors_and_is_explained(caplog):
    assert [choose_index_type("auto", n)[0] for n in (10, 20_000, 20_001, 2_000_000, 2_000_001)] == [
        "exact",
        "exact",
        "hnsw",
        "hnsw",
        "ivf",
    ]
    assert choose_index_type("ivf", 10)[0] == "ivf"
    with caplog.at_level(logging.INFO, "nearfar"):
        build_index(table(20), None, None)
    assert [r.getMessage() for r in caplog.records] == ["20 vectors: exact search, which is quick up to 20,000"]


@pytest.fixture
def folder(tmp_path) -> Path:
    build_index(table(30), None, tmp_path / "index", model=ModelIdentity("run", "f" * 64))
    return tmp_path / "index"


@pytest.mark.parametrize("file", ["vectors-1.faiss", "rows-1.arrow", "deleted-1.npy", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damage_is_named_in_one_line(folder, file, harm):
    path = folder / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(bytes(data) if harm == "flip" else bytes(data[: len(data) // 2]))
    with pytest.raises(NearfarError) as e:
        open_index(folder)
    assert file in str(e.value)
    assert "\n" not in str(e.value)


def test_a_manifest_that_was_edited_or_points_elsewhere_is_refused(folder):
    import hashlib

    sealed = json.loads((folder / "manifest.json").read_text())
    sealed["body"]["metric"] = "l2"
    (folder / "manifest.json").write_text(json.dumps(sealed))
    with pytest.raises(NearfarError, match=r"manifest.json is damaged"):
        open_index(folder)
    sealed["body"]["sha256"] = {"../secret.npy": "0"}
    canonical = json.dumps(sealed["body"], sort_keys=True, separators=(",", ":")).encode()
    (folder / "manifest.json").write_text(json.dumps({"sha256": hashlib.sha256(canonical).hexdigest(), "body": sealed["body"]}))
    with pytest.raises(NearfarError, match=r"manifest.json is damaged"):
        open_index(folder)


def test_where_there_is_no_index(tmp_path):
    with pytest.raises(UsageError, match="there is no such folder"):
        open_index(tmp_path / "none")
    (tmp_path / "some").mkdir()
    with pytest.raises(UsageError, match=r"it has no manifest\.json"):
        open_index(tmp_path / "some")


def test_targets_that_are_taken_are_refused_and_overwriting_replaces(folder, tmp_path):
    with pytest.raises(UsageError, match="already holds an index"):
        check_index_target(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="other files in it"):
            check_index_target(tmp_path / "other", overwrite)
    with pytest.raises(UsageError, match="is a file"):
        check_index_target(tmp_path / "other" / "thesis.txt")
    with pytest.raises(UsageError, match="there is no folder"):
        check_index_target(tmp_path / "no" / "such")
    old = open_index(folder)
    build_index(table(8), None, folder, overwrite=True)
    assert len(open_index(folder)) == 8
    assert len(old) == 30
    assert old.describe_rows([29])[0]["name"] == "row 29", "whoever has it open keeps what was there"


@pytest.mark.parametrize("damage", [b"nonsense", b"", b'{"sha256": "", "body": {"format": 1}}'])
def test_a_damaged_index_can_be_overwritten(folder, damage):
    open_index(folder).add(table(5))
    (folder / "manifest.json").write_bytes(damage)
    with pytest.raises(NearfarError, match="again"):
        open_index(folder)
    build_index(table(8), None, folder, overwrite=True)
    assert len(open_index(folder)) == 8
    assert sorted(p.name for p in folder.iterdir()) == ["deleted-3.npy", "lock", "manifest.json", "rows-3.arrow", "vectors-3.faiss"]


def test_a_build_that_fails_leaves_nothing_and_a_change_that_fails_leaves_the_old(folder, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("nearfar.index.local_index._write_row_table", full)
        with pytest.raises(NearfarError, match=r"cannot write the index .*No space left"):
            build_index(table(5), None, tmp_path / "new")
        index = open_index(folder)
        with pytest.raises(NearfarError, match="No space left on device; the index is unchanged"):
            index.add(table(5))
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
    again = open_index(folder)
    assert len(again) == 30
    again.add(table(5))
    assert sorted(p.name for p in folder.iterdir()) == ["deleted-2.npy", "lock", "manifest.json", "rows-2.arrow", "vectors-2.faiss"]


def test_an_index_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    disk = DiskLog(monkeypatch)
    index = build_index(table(60), None, tmp_path / "index")
    disk.assert_flushed_around_rename(tmp_path / "index")
    disk.events.clear()
    index.delete([3])
    disk.assert_flushed_around_rename(tmp_path / "index" / "manifest.json")
    renamed = disk.events.index(("renamed", tmp_path / "index" / "manifest.json"))
    before = {path.name for what, path in disk.events[:renamed] if what == "flushed"}
    assert {"vectors-2.faiss", "rows-2.arrow", "deleted-2.npy"} <= before


def test_two_writers_do_not_overwrite_each_other(folder):
    first, second = open_index(folder), open_index(folder)
    first.add(table(5))
    with pytest.raises(NearfarError, match="changed by another process since it was opened"):
        second.delete(0)
    with lock_index_folder(folder), pytest.raises(NearfarError, match="another process is changing"):
        first.delete(0)
    assert len(open_index(folder)) == 35


@pytest.mark.parametrize("kind", INDEX_TYPES)
def test_a_change_that_is_refused_changes_nothing_in_memory_either(tmp_path, kind):
    x = table(90)
    build_index(x[:60], None, tmp_path / "index", index_type=kind)
    index = open_index(tmp_path / "index")
    before = index.search(x, 3)
    with lock_index_folder(tmp_path / "index"):
        with pytest.raises(NearfarError, match="another process is changing"):
            index.add(x[60:])
        with pytest.raises(NearfarError, match="another process is changing"):
            index.delete([0, 1])
    after = index.search(x, 3)
    assert (len(index), index.next_row, index.deleted_rows.tolist()) == (60, 60, [])
    assert np.array_equal(before.rows, after.rows)
    assert np.array_equal(before.scores, after.scores)
    assert index.add(x[60:], ["new"] * 30).tolist() == list(range(60, 90)), "and it can be tried again"
    assert index.delete([0, 60]).tolist() == [0, 60]
    assert open_index(tmp_path / "index").search(x, 3).rows.tolist() == index.search(x, 3).rows.tolist()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("rows", [5, 5000])
def test_a_full_disk_is_an_error_however_few_bytes_are_missing(rows):
    with pytest.raises(OSError, match="No space left"):
        build_index(table(rows), None, None, index_type="exact").engine.write(Path("/dev/full"))


def test_without_faiss_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match="pip install faiss-cpu"):
        build_index(table(5), None, None)


def test_faiss_and_pymilvus_are_imported_when_they_are_needed():
    """Training works where they are not installed, and help does not wait for them."""
    for path in Path(nearfar.index.__file__).parent.glob("*.py"):
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not {"faiss", "pymilvus"} & {name.name.split(".")[0] for node in top for name in node.names}, path
