"""The table modality: recognized data, baselines, queries, rows as text, evaluation from labels in a file, and export."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar.api.choose import recognize_modality
from nearfar.core import RandomKey, UsageError
from nearfar.data.table.load import load_tables
from nearfar.export import export_encoder
from nearfar.modalities import find_modality
from nearfar.modalities.table import MAX_TRAIN_ROWS, compute_principal_axes
from nearfar.train.model import Model


@cache
def wine_model() -> Model:
    return nearfar.fit("scarf", "wine", steps=2, batch_size=16, encoder="mlp-2x16")


def write(path, text: str):
    path.write_text(text)
    return path


def test_tables_are_told_from_texts_and_images(tmp_path):
    rows = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "images.npy", np.zeros((4, 8, 8), dtype=np.uint8))
    tables = [
        write(tmp_path / "a.csv", "x,y,label\n1,2,a\n3,4,b\n"), write(tmp_path / "b.csv", "1,2\n3,4\n"), tmp_path / "rows.npy",
        rows, torch.from_numpy(rows), (rows, np.arange(4)), {"a": [1, 2], "b": [3, 4]}, "iris",
    ]  # fmt: skip
    others = [write(tmp_path / "t.csv", "text,label\nhello there,a\nbye,b\n"), write(tmp_path / "q.tsv", "sentence\nhello\n")]
    assert [recognize_modality(data).name for data in tables] == ["table"] * len(tables)
    assert [recognize_modality(data).name for data in others] == ["text"] * len(others)
    for data in (tmp_path / "images.npy", np.zeros((4, 8, 8)), {"text": ["a", "b"]}, tmp_path / "no.csv", ["a", "b"], 7):
        assert not find_modality("table").recognizes(data)


def test_parquet_files_of_numbers_are_recognized(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1, 2], "label": ["x", "y"]}), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "texts.parquet")
    assert find_modality("table").recognizes(tmp_path / "numbers.parquet")
    assert not find_modality("table").recognizes(tmp_path / "texts.parquet")


def test_baselines_are_those_of_scikit_learn():
    splits = load_tables("wine")
    found = find_modality("table").compute_baselines(splits.train, splits.test, None)
    train, test = (part.read(np.arange(len(part))).double().numpy() for part in (splits.train, splits.test))
    scaler = StandardScaler().fit(train)
    np.testing.assert_allclose(found["raw features, scaled"].test, scaler.transform(test), atol=1e-4)
    pca = PCA(whiten=True, svd_solver="full").fit(scaler.transform(train))
    scale = np.sqrt(len(train) / (len(train) - 1))  # scikit-learn divides by n - 1
    np.testing.assert_allclose(
        found["PCA, whitened"].test.abs().numpy(), np.abs(pca.transform(scaler.transform(test))) * scale, atol=2e-3, rtol=1e-3
    )
    assert all(features.baseline and not features.standardize for features in found.values())


def test_principal_axes_skip_directions_without_variance():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(200, 3)))
    rows = torch.cat([x, x[:, :1] + x[:, 1:2], torch.zeros(200, 1, dtype=x.dtype)], 1)
    projected = rows @ compute_principal_axes(rows.float(), 5).double()
    covariance = np.cov(projected.numpy().T, bias=True)
    np.testing.assert_allclose(covariance, np.diag([1, 1, 1, 0, 0]), atol=1e-5)
    assert compute_principal_axes(rows.float(), 2).shape == (5, 2)
    assert torch.equal(compute_principal_axes(rows.float(), 3), compute_principal_axes(rows.float(), 3))


def test_queries_are_rows_as_json_or_files(tmp_path):
    model, table = wine_model(), load_wine()
    row = table.data[7].tolist()
    named = dict(zip(table.feature_names, row, strict=True))
    write(tmp_path / "rows.csv", ",".join(named) + "\n" + ",".join(map(str, row)) + "\n")
    expected = model.encode(table.data[7:8])
    for query in (json.dumps(row), json.dumps([row]), json.dumps(named), json.dumps([named]), str(tmp_path / "rows.csv")):
        assert torch.equal(model.encode(model.modality.parse_query(model, query)), expected)
    for query, why in (
        ("hello", r"there is no file 'hello': .*a JSON list of 13 numbers.*\"alcohol\": 0"),
        ("[]", "there is no file"),
        ("3.5", "there is no file"),
        ("[1, 2]", "has 2 features, and this model was trained on 13"),
        ('{"alcohol": 1}', "no column 'malic_acid', which this model was trained on"),
        (json.dumps([*row[:-1], "a"]), "features must be numbers"),
    ):
        with pytest.raises(UsageError, match=why):
            model.encode(model.modality.parse_query(model, query))


def test_rows_and_views_are_shown_as_text():
    model = wine_model()
    splits = model.inputs.load_splits("wine", model.config)
    shown = model.modality.build_sample_renderer(splits.train)(torch.tensor([[0, 1], [2, 3]]))
    assert shown[1][0] == splits.train.format_row(2)
    assert shown[0][0].startswith("alcohol = ")
    first, second = model.modality.render_views(model, (splits.train.read([0]), splits.train.read([1])))
    assert [first[0], second[0]] == [splits.train.format_row(0), splits.train.format_row(1)]
    assert model.modality.summarize_data(splits.train) == "142 training rows of 13 features"


def test_large_training_splits_are_subsampled():
    train = load_tables(np.arange(2.0 * (MAX_TRAIN_ROWS + 50)).reshape(-1, 2), test_ids=[]).train
    chosen = find_modality("table").select_train_samples(train, RandomKey(0))
    assert len(chosen) == MAX_TRAIN_ROWS
    assert (np.diff(chosen.ids) > 0).all()


def test_labels_of_a_file_are_evaluated_after_training_without_them(tmp_path):
    table = load_wine()
    header = [f"a{j}" for j in range(13)] + ["kind"]
    lines = [",".join([*map(str, row), f"class {label}"]) for row, label in zip(table.data, table.target, strict=True)]
    path = write(tmp_path / "wine.csv", "\n".join([",".join(header), *lines]) + "\n")
    run = nearfar.fit("scarf", str(path), columns="label=kind", steps=3, batch_size=32, out=tmp_path / "run")
    found = nearfar.evaluate_model(nearfar.load(tmp_path / "run"))
    assert [row["representation"] for row in found.results] == [
        "raw features, scaled", "PCA, whitened", "untrained encoder", "trained encoder"
    ]  # fmt: skip
    assert found.results[0]["linear"] > 0.9
    assert run.net.sizes["columns"] == header[:-1]


def test_an_exported_encoder_gives_the_models_vectors(tmp_path):
    model, rows = wine_model(), torch.from_numpy(load_wine().data[:9]).float()
    export_encoder(model, "torch", tmp_path / "out")
    program = torch.export.load(tmp_path / "out" / "model.pt2").module()
    torch.testing.assert_close(program(rows), model.encode(rows), atol=1e-5, rtol=1e-5)
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert about["columns"] == load_wine().feature_names
