"""What the explorer shows, computed: maps, colors, who moved; an index behind the server; the page's files."""

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
from nearfar.core import NearfarError, UsageError
from nearfar.index import RowTable, build_index, identify_model, open_index
from nearfar.server import explorer
from nearfar.server.collection import IndexCollection, RunCollection
from nearfar.server.explorer import maps, runs
from nearfar.server.explorer import training_diagnostics as health
from nearfar.server.explorer.columns import build_category_column, compute_clusters, compute_density, list_known_columns
from nearfar.server.explorer.page_data import Explorer
from nearfar.server.explorer.runs import align_map, compute_neighbor_changes, find_runs, measure_run
from nearfar.server.explorer.tasks import TaskQueue, build_task_response
from nearfar.server.explorer.training_diagnostics import compute_diagnostics, read_curves, render_training_views
from nearfar.server.lifecycle import open_collection
from nearfar.server.limits import RequestError
from nearfar.server.neighbors import SearchRequest
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
    found, known = maps.compute_map(x, "pca", 0), PCA(2).fit_transform(x)
    assert np.allclose(np.abs(found), np.abs(known) / np.abs(known).max(), atol=1e-4)
    assert maps.compute_map(x[:3, :1], "pca", 0).shape == (3, 2)
    assert np.isfinite(maps.compute_map(np.zeros((4, 3), np.float32), "pca", 0)).all()


def test_a_map_drawn_in_another_process_is_that_of_this_one():
    assert np.array_equal(maps.MapProcess()(clouds(), "pca", 0, lambda share: None), maps.compute_map(clouds(), "pca", 0))


def test_maps_that_cannot_be_drawn_are_named():
    with pytest.raises(UsageError, match="unknown map 'globe'"):
        maps.resolve_map_method("globe")
    stopped = maps.MapProcess()
    stopped.stop()
    with pytest.raises(NearfarError, match="stopping"):
        stopped(clouds(), "pca", 0, lambda share: None)


def test_rows_are_those_of_embed_and_a_second_start_reads_them_from_the_cache(served, folder, monkeypatch):
    from sklearn.datasets import load_digits

    assert [item["label"] for item in served.describe_rows([0, 1, 1796])] == [str(load_digits().target[i]) for i in (0, 1, 1796)]
    trained = served.model
    assert np.allclose(trained.encode("digits").numpy(), served.get_vectors(served.rows), atol=1e-6)
    assert (np.array(served.get_splits()) == "test").sum() == len(trained.run_folder.read_split())
    monkeypatch.setattr(RunCollection, "_encode", lambda *_: pytest.fail("encoded again"))
    again = RunCollection(nearfar.load(folder / "run", device="cpu"))
    assert np.array_equal(again.features, served.features)


def test_an_index_is_served_as_a_run_is(served, tmp_path):
    names = [f"row {i}" for i in range(len(served))]
    items = RowTable.from_columns(names, served.get_labels(), thumbnails=[served.get_png(i) for i in range(len(served))])
    index = build_index(served.features, items, tmp_path / "index", index_type="exact", model=identify_model(served.model))
    index.delete([5])
    collection = IndexCollection(open_index(tmp_path / "index"), served.model)
    assert len(collection) == 1796
    assert 5 not in collection.rows
    (hits,) = collection.search([SearchRequest(served.features[[3, 9]], 4)])
    (own,) = served.search([SearchRequest(served.features[[3, 9]], 5)])
    for found, known in zip(hits.rows.tolist(), own.rows.tolist(), strict=True):
        assert found == [row for row in known if row != 5][:4]
    assert collection.describe_rows([3]) == served.describe_rows([3])
    assert collection.get_png(3)[:4] == b"\x89PNG"


def test_an_index_without_rows_has_none(tmp_path):
    build_index(clouds(6), None, tmp_path / "index").delete(list(range(6)))
    service = Service(IndexCollection(open_index(tmp_path / "index"), None))
    try:
        with pytest.raises(RequestError, match="there is no row 3") as refused:
            service.check_row(3)
        assert refused.value.status == 404
        with pytest.raises(RequestError, match="there are no rows"):
            Explorer(service, None, "pca").request_column("crowding", 3)
        with pytest.raises(NearfarError, match="at least one of each"):
            compute_diagnostics(service.collection)
    finally:
        service.worker.stop()


def test_a_store_is_not_served_and_that_is_said(tmp_path):
    for store in (str(tmp_path / "m.db"), "http://localhost:19530"):
        with pytest.raises(UsageError, match=f"{store} is a Milvus store, which is not served"):
            open_collection({"path": store}, None)


def test_what_fails_in_the_background_is_said_once_and_tried_again():
    tasks, tried = TaskQueue(), []

    def work(report):
        tried.append(1)
        raise NearfarError("no luck")

    def ask() -> Response:
        return build_task_response(tasks.get_or_start("work", "working", work), Response)

    assert ask().status_code == 202
    tasks.tasks["work"].future.exception(timeout=10)
    with pytest.raises(RequestError, match="working: not possible"):
        ask()
    assert ask().status_code == 202
    tasks.tasks["work"].future.exception(timeout=10)
    tasks.worker.stop()
    assert len(tried) == 2


def test_columns(served):
    found = {column.name: column for column in list_known_columns(served)}
    assert found["label"].classes == [str(i) for i in range(10)]
    assert [found["label"].classes[c] for c in found["label"].data[:20]] == served.get_labels()[:20]
    assert build_category_column("n", ["10", "2", None]).classes == ["2", "10", "none"]
    assert len(build_category_column("many", list(range(3000))).classes) == 1001


class Points(RunCollection):
    """Vectors that are served without a run."""

    def __init__(self, features: np.ndarray):
        from nearfar.server.neighbors import ExactCosineSearch

        self.features, self.rows, self.exact_search = features, np.arange(len(features)), ExactCosineSearch(features)


def test_clusters_find_clouds_and_crowding_finds_loners():
    x = clouds(90)
    assert adjusted_rand_score(np.arange(90) * 3 // 90, compute_clusters(Points(x), 3).data) == 1
    x[17] = -x[17]
    assert compute_density(Points(x), lambda share: None).data.argmin() == 17


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_crowding_is_a_mean_cosine_whatever_an_index_measures(metric, tmp_path):
    """Lengths differ, so that by dot product a row is not its own nearest; twins, a row of zeros and gaps in the numbers are there."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(70, 6)) * rng.uniform(0.1, 10, size=(70, 1))).astype(np.float32)
    x[40], x[50] = 3 * x[41], 0
    index = build_index(
        x, RowTable.from_columns([f"row {i}" for i in range(70)], None), tmp_path / "index", index_type="exact", metric=metric
    )
    index.delete([5, 6])
    collection = IndexCollection(open_index(tmp_path / "index"), None)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    known = [np.mean(sorted(float(unit[i] @ unit[j]) for j in collection.rows if j != i)[-10:]) for i in collection.rows]
    assert np.allclose(compute_density(collection, lambda share: None).data, known, atol=1e-5)


def test_one_row_alone_is_in_no_crowd():
    assert compute_density(Points(clouds(1)), lambda share: None).data.tolist() == [0]


def test_who_moved_is_who_was_moved():
    one = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    other = one.copy()
    other[:5] = -other[:5]
    share = compute_neighbor_changes(Points(one), Points(other), lambda done: None)
    assert compute_neighbor_changes(Points(one), Points(one), lambda done: None).max() == 0
    assert share[:5].min() > 0.8
    assert share[5:].mean() < 0.3


def test_a_turned_map_lies_on_the_other():
    points = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    points /= np.abs(points).max()
    c, s = np.cos(2.0), np.sin(2.0)
    mirrored = points @ np.array([[c, -s], [s, c]], dtype=np.float32) * [1, -1]
    assert np.allclose(align_map(mirrored.astype(np.float32), points), points, atol=1e-5)


def test_runs_of_a_folder_and_their_place(folder):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "broken" / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "broken" / "config.json").write_text("{")
    assert list(find_runs(folder)) == ["broken", "run"]
    assert find_runs(None) == {}
    found = measure_run(folder / "run", "cpu")
    assert found == measure_run(folder / "run", "cpu")
    assert 0 < found["alignment"] < 4
    assert found["uniformity"] < 0
    assert "problem" in measure_run(folder / "broken", "cpu")


def test_curves_views_and_health(served):
    assert [step for step, _ in read_curves(served.model)["loss"]] == sorted({m["step"] for m in served.model.metrics if "loss" in m})
    pairs = render_training_views(served.model)
    assert len(pairs) == 24
    assert all(view["picture"].startswith("data:image/png;base64,") for pair in pairs for view in pair)
    found = compute_diagnostics(served)
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
    monkeypatch.setattr(health, "DIAGNOSED_SAMPLES", 20)
    collection = RunCollection(served.model, dark_then_bright(tmp_path, {"train": 60, "test": 30}))
    collection.features = served.model.build_untrained().encode(tmp_path).numpy()
    found = compute_diagnostics(collection)
    assert found["trained"]["spread"] > 0
    for name, value in found["trained"].items():
        assert found["before training"][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_the_place_of_a_run_is_that_of_rows_from_all_over_its_test_split(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "GEOMETRY_SAMPLES", 20)
    data = dark_then_bright(tmp_path / "data", {"train": 40, "test": 60})
    nearfar.fit("simclr", data=data, out=tmp_path / "run", steps=1, batch_size=8)
    assert measure_run(tmp_path / "run", "cpu")["spread"] > 1e-3, "the first thirty are one and the same picture"


def test_the_pages_scripts_import_only_each_other_and_never_write_markup():
    names = {path.name for path in PAGE.glob("*.js")}
    assert len(names) >= 10
    for path in PAGE.glob("*.js"):
        text = path.read_text()
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= names
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", text), path.name
    page = (PAGE / "index.html").read_text()
    assert all(address.startswith(("/static/", "data:")) for address in re.findall(r'(?:src|href)="([^"]+)"', page))


@pytest.mark.parametrize("module", ["fastapi", "prometheus_client"])
def test_without_the_extra_the_error_names_it(folder, module):
    code = (
        f"import sys; sys.modules[{module!r}] = None; from nearfar.cli.main import main; sys.exit(main(['serve', {str(folder / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "pip install 'nearfar[serve]'" in done.stderr
