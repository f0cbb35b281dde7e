"""What the explorer shows, computed: maps, colours, who moved; an index behind the server; the page's files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from serving import small_run
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from fastapi.responses import Response

import nearfar
from nearfar.cli.serve import open_collection
from nearfar.core import NearfarError, UsageError
from nearfar.index import Items, build, model_of, open_index
from nearfar.server import explorer
from nearfar.server.collection import IndexCollection, RunCollection
from nearfar.server.explorer import health, maps, runs
from nearfar.server.explorer.columns import category, clusters, crowding, known_columns
from nearfar.server.explorer.health import curves, diagnostics, views
from nearfar.server.explorer.routes import Explorer
from nearfar.server.explorer.runs import moved, place, runs_in, turned
from nearfar.server.explorer.tasks import Tasks, answered
from nearfar.server.limits import Refused
from nearfar.server.neighbors import Query
from nearfar.server.service import Service

PAGE = Path(explorer.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("explorer") / "run").parent


@pytest.fixture(scope="module")
def served(folder):
    return RunCollection(nearfar.load(folder / "run", device="cpu"))


def clouds(n: int = 60, seed: int = 0) -> np.ndarray:
    """Three clouds far from each other, one after the other."""
    return (np.random.default_rng(seed).normal(size=(n, 8)) + 20 * np.eye(3, 8)[np.arange(n) * 3 // n]).astype(np.float32)


def test_pca_is_that_of_scikit_learn_but_for_signs_and_scale():
    x = clouds()
    found, known = maps.project(x, "pca", 0), PCA(2).fit_transform(x)
    assert np.allclose(np.abs(found), np.abs(known) / np.abs(known).max(), atol=1e-4)
    assert maps.project(x[:3, :1], "pca", 0).shape == (3, 2)
    assert np.isfinite(maps.project(np.zeros((4, 3), np.float32), "pca", 0)).all()


def test_a_map_drawn_in_another_process_is_that_of_this_one():
    assert np.array_equal(maps.Drawing()(clouds(), "pca", 0, lambda share: None), maps.project(clouds(), "pca", 0))


def test_maps_that_cannot_be_drawn_are_named():
    with pytest.raises(UsageError, match="unknown map 'globe'"):
        maps.check("globe")
    stopped = maps.Drawing()
    stopped.stop()
    with pytest.raises(NearfarError, match="stopping"):
        stopped(clouds(), "pca", 0, lambda share: None)


def test_rows_are_those_of_embed_and_a_second_start_reads_them_from_the_cache(served, folder, monkeypatch):
    from sklearn.datasets import load_digits

    assert [item["label"] for item in served.items([0, 1, 1796])] == [str(load_digits().target[i]) for i in (0, 1, 1796)]
    trained = served.trained
    assert np.allclose(trained.encode("digits").numpy(), served.vectors(served.rows), atol=1e-6)
    assert (np.array(served.splits()) == "test").sum() == len(trained.folder.split())
    monkeypatch.setattr(RunCollection, "_encode", lambda *_: pytest.fail("encoded again"))
    again = RunCollection(nearfar.load(folder / "run", device="cpu"))
    assert np.array_equal(again.features, served.features)


def test_an_index_is_served_as_a_run_is(served, tmp_path):
    names = [f"row {i}" for i in range(len(served))]
    items = Items.of(names, served.labels(), pictures=[served.picture(i) for i in range(len(served))])
    index = build(served.features, items, tmp_path / "index", kind="exact", model=model_of(served.trained))
    index.delete([5])
    collection = IndexCollection(open_index(tmp_path / "index"), served.trained)
    assert len(collection) == 1796
    assert 5 not in collection.rows
    (hits,) = collection.search([Query(served.features[[3, 9]], 4)])
    (own,) = served.search([Query(served.features[[3, 9]], 5)])
    for found, known in zip(hits.rows.tolist(), own.rows.tolist(), strict=True):
        assert found == [row for row in known if row != 5][:4]
    assert collection.items([3]) == served.items([3])
    assert collection.picture(3)[:4] == b"\x89PNG"


def test_an_index_without_rows_has_none(tmp_path):
    build(clouds(6), None, tmp_path / "index").delete(list(range(6)))
    service = Service(IndexCollection(open_index(tmp_path / "index"), None))
    try:
        with pytest.raises(Refused, match="there is no row 3") as refused:
            service.row(3)
        assert refused.value.status == 404
        with pytest.raises(Refused, match="there are no rows"):
            Explorer(service, None, "pca").column("crowding", 3)
        with pytest.raises(NearfarError, match="at least one of each"):
            diagnostics(service.collection)
    finally:
        service.worker.stop()


def test_a_store_is_not_served_and_that_is_said(tmp_path):
    for store in (str(tmp_path / "m.db"), "http://localhost:19530"):
        with pytest.raises(UsageError, match=f"{store} is a Milvus store, which is not served"):
            open_collection({"path": store}, None)


def test_what_fails_in_the_background_is_said_once_and_tried_again():
    tasks, tried = Tasks(), []

    def work(report):
        tried.append(1)
        raise NearfarError("no luck")

    def ask() -> Response:
        return answered(tasks.ask("work", "working", work), Response)

    assert ask().status_code == 202
    tasks.known["work"].answer.exception(timeout=10)
    with pytest.raises(Refused, match="working: not possible"):
        ask()
    assert ask().status_code == 202
    tasks.known["work"].answer.exception(timeout=10)
    tasks.worker.stop()
    assert len(tried) == 2


def test_columns(served):
    found = {column.name: column for column in known_columns(served)}
    assert found["label"].values == [str(i) for i in range(10)]
    assert [found["label"].values[c] for c in found["label"].data[:20]] == served.labels()[:20]
    assert category("n", ["10", "2", None]).values == ["2", "10", "none"]
    assert len(category("many", list(range(3000))).values) == 1001


class Points(RunCollection):
    """Vectors that are served without a run."""

    def __init__(self, features: np.ndarray):
        from nearfar.server.neighbors import Exact

        self.features, self.rows, self.exact = features, np.arange(len(features)), Exact(features)


def test_clusters_find_clouds_and_crowding_finds_loners():
    x = clouds(90)
    assert adjusted_rand_score(np.arange(90) * 3 // 90, clusters(Points(x), 3).data) == 1
    x[17] = -x[17]
    assert crowding(Points(x), lambda share: None).data.argmin() == 17


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_crowding_is_a_mean_cosine_whatever_an_index_measures(metric, tmp_path):
    """Lengths differ, so that by dot product a row is not its own nearest; twins, a row of zeros and gaps in the numbers are there."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(70, 6)) * rng.uniform(0.1, 10, size=(70, 1))).astype(np.float32)
    x[40], x[50] = 3 * x[41], 0
    index = build(x, Items.of([f"row {i}" for i in range(70)], None), tmp_path / "index", kind="exact", metric=metric)
    index.delete([5, 6])
    collection = IndexCollection(open_index(tmp_path / "index"), None)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    known = [np.mean(sorted(float(unit[i] @ unit[j]) for j in collection.rows if j != i)[-10:]) for i in collection.rows]
    assert np.allclose(crowding(collection, lambda share: None).data, known, atol=1e-5)


def test_one_row_alone_is_in_no_crowd():
    assert crowding(Points(clouds(1)), lambda share: None).data.tolist() == [0]


def test_who_moved_is_who_was_moved():
    one = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    other = one.copy()
    other[:5] = -other[:5]
    share = moved(Points(one), Points(other), lambda done: None)
    assert moved(Points(one), Points(one), lambda done: None).max() == 0
    assert share[:5].min() > 0.8
    assert share[5:].mean() < 0.3


def test_a_turned_map_lies_on_the_other():
    points = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    points /= np.abs(points).max()
    c, s = np.cos(2.0), np.sin(2.0)
    mirrored = points @ np.array([[c, -s], [s, c]], dtype=np.float32) * [1, -1]
    assert np.allclose(turned(mirrored.astype(np.float32), points), points, atol=1e-5)


def test_runs_of_a_folder_and_their_place(folder):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "broken" / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "broken" / "config.json").write_text("{")
    assert list(runs_in(folder)) == ["broken", "run"]
    assert runs_in(None) == {}
    found = place(folder / "run", "cpu")
    assert found == place(folder / "run", "cpu")
    assert 0 < found["alignment"] < 4
    assert found["uniformity"] < 0
    assert "problem" in place(folder / "broken", "cpu")


def test_curves_views_and_health(served):
    assert [step for step, _ in curves(served.trained)["loss"]] == sorted({m["step"] for m in served.trained.metrics if "loss" in m})
    pairs = views(served.trained)
    assert len(pairs) == 24
    assert all(view["picture"].startswith("data:image/png;base64,") for pair in pairs for view in pair)
    found = diagnostics(served)
    assert list(found) == ["trained", "before training"]
    assert found["trained"]["spectrum"][0] == 1
    assert torch.tensor(found["trained"]["spectrum"]).diff().max() <= 0


def dark_then_bright(folder: Path, counts: dict[str, int]) -> Path:
    """Pictures sorted by class, half of each part black."""
    rng = np.random.default_rng(0)
    for part, count in counts.items():
        for i in range(count):
            target = folder / part / ("dark" if i < count // 2 else "light") / f"{i:03}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8) * np.uint8(i >= count // 2)).save(target)
    return folder


def test_health_compares_the_nets_on_the_same_rows_of_all_parts(served, tmp_path, monkeypatch):
    """Vectors of the untrained net in the place of the trained one's: both descriptions must be the same."""
    monkeypatch.setattr(health, "SAMPLES", 20)
    collection = RunCollection(served.trained, dark_then_bright(tmp_path, {"train": 60, "test": 30}))
    collection.features = served.trained.untrained().encode(tmp_path).numpy()
    found = diagnostics(collection)
    assert found["trained"]["spread"] > 0
    for name, value in found["trained"].items():
        assert found["before training"][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_the_place_of_a_run_is_that_of_rows_from_all_over_its_test_split(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MEASURED", 20)
    data = dark_then_bright(tmp_path / "data", {"train": 40, "test": 60})
    nearfar.fit("simclr", data=data, out=tmp_path / "run", steps=1, batch=8)
    assert place(tmp_path / "run", "cpu")["spread"] > 1e-3, "the first thirty are one and the same picture"


def test_the_pages_scripts_import_only_each_other_and_never_write_markup():
    names = {path.name for path in PAGE.glob("*.js")}
    assert len(names) >= 10
    for path in PAGE.glob("*.js"):
        text = path.read_text()
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= names
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", text), path.name
    page = (PAGE / "index.html").read_text()
    assert all(address.startswith(("/static/", "data:")) for address in re.findall(r'(?:src|href)="([^"]+)"', page))


def test_without_the_extra_the_error_names_it(folder):
    code = (
        f"import sys; sys.modules['fastapi'] = None; from nearfar.cli.main import main; sys.exit(main(['serve', {str(folder / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "pip install 'nearfar[serve]'" in done.stderr
