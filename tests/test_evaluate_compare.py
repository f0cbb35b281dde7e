"""The standard table: what it measures, what it marks, what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nearfar.core import NearfarError, RandomKey
from nearfar.evaluate import Features, ResultTable, build_pixel_baselines, compare_features, effective_rank, knn, linear_probe
from nearfar.losses import alignment, uniformity


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    x, y = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, torch.tensor(found.target)
    return x[:600], y[:600], x[600:900], y[600:900]


@pytest.fixture(scope="module")
def representations(digits):
    train, _, test, _ = digits
    views = (test[:50], test[:50].roll(1, 3))
    project = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))

    def encode(x):
        return torch.relu(x.flatten(1) @ project)

    encoded = Features(encode(train), encode(test), views=(encode(views[0]), encode(views[1])))
    return build_pixel_baselines(train, test, views) | {"encoder": encoded}


@pytest.fixture(scope="module")
def table(representations, digits):
    return compare_features(representations, digits[1], digits[3], rng_key=RandomKey(0), draws=3)


def test_numbers_are_those_of_the_functions(table, representations, digits):
    _, train_y, _, test_y = digits
    row, features = table.rows[2], representations["encoder"]
    assert row["representation"] == "encoder"
    assert row["linear"] == linear_probe(features.train, train_y, features.test, test_y).accuracy
    assert row["knn"] == knn(features.train, train_y, features.test, test_y).accuracy
    assert row["alignment"] == pytest.approx(float(alignment(*features.views)))
    assert row["uniformity"] == pytest.approx(float(uniformity(features.test)))
    assert row["effective_rank"] == pytest.approx(effective_rank(features.test))
    assert row["few_labels"] > 0.5
    assert row["few_labels_std"] > 0


def test_every_row_names_its_protocol_and_survives_json(table):
    protocol = {"k": 20, "temperature": 0.07, "per_class": 5, "draws": 3, "C": 1.0, "split": "test", "checkpoint": "last epoch"}
    for row in json.loads(json.dumps(table.rows)):
        assert protocol.items() <= row.items()
    assert ResultTable.from_json(table.to_json()) == table
    with pytest.raises(NearfarError, match="not a table"):
        ResultTable.from_json("[]")


def test_the_same_inputs_give_the_same_table(table, representations, digits):
    assert compare_features(representations, digits[1].numpy(), digits[3].numpy(), rng_key=RandomKey(0), draws=3) == table


def test_scaled_pixels_are_standardised_by_the_training_split(representations, digits):
    scaled = representations["raw pixels, scaled"]
    flat = digits[0].flatten(1)
    expected = (digits[2].flatten(1) - flat.mean(0)) / flat.std(0, correction=0).clamp_min(1e-9)
    varying = flat.std(0) > 0
    assert torch.allclose(scaled.test[:, varying], expected[:, varying], atol=1e-4)


def made(raw: tuple[float, float, float], trained: tuple[float, float, float]) -> ResultTable:
    names = ("few_labels", "linear", "knn")
    rows = [
        {"representation": "raw pixels", "baseline": True, **dict(zip(names, raw, strict=True)), "few_labels_std": 0.01, "alignment": 0.1},
        {
            "representation": "trained encoder",
            "baseline": False,
            **dict(zip(names, trained, strict=True)),
            "few_labels_std": 0.02,
            "alignment": 0.2,
        },
    ]
    protocol = {
        "split": "test",
        "checkpoint": "last epoch",
        "geometry_samples": 4096,
        "k": 7,
        "k_asked": 20,
        "temperature": 0.07,
        "per_class": 5,
    }
    return ResultTable(rows, protocol | {"draws": 10, "short_classes": 2, "C": 1.0})


def test_render_marks_winners_and_says_where_raw_pixels_win():
    text = made(raw=(0.7, 0.9, 0.99), trained=(0.8, 0.95, 0.97)).render()
    raw, trained = (next(line for line in text.splitlines() if line.strip().startswith(name)) for name in ("raw", "trained"))
    assert [w.endswith("*") or "*" in w for w in raw.split("  ") if w.strip()].count(True) == 1
    assert "99.00*" in raw
    assert "80.0 ± 2.0*" in trained
    assert "95.00*" in trained
    assert "Some baselines score higher than training: raw pixels beat trained encoder on kNN (99.00 vs 97.00)." in text
    assert "k = 7 (clipped from 20)" in text
    assert "2 classes have fewer" in text


def test_nothing_is_said_where_training_wins_everywhere_or_ties():
    table = made(raw=(0.7, 0.9, 0.97), trained=(0.8, 0.95, 0.97))
    assert table.verdict == ""
    assert table.find_best_rows("knn") == [0, 1]
    assert table.find_best_rows("alignment") == []


def test_a_probe_that_did_not_converge_is_said():
    table = made(raw=(0.7, 0.9, 0.9), trained=(0.8, 0.95, 0.97))
    assert "1, to convergence" in table.render()
    table.results[0]["linear_converged"] = False
    assert "1, NOT all to convergence" in table.render()


def test_names_with_brackets_are_not_markup():
    table = made(raw=(0.7, 0.9, 0.9), trained=(0.8, 0.95, 0.97))
    table.results[1]["representation"] = "[bold]run[/bold]"
    assert "[bold]run[/bold]" in table.render()


def test_without_labels_only_geometry_remains(representations):
    table = compare_features(representations, rng_key=RandomKey(0))
    assert list(table.columns) == ["alignment", "uniformity", "effective_rank", "spread"]
    assert "kNN" not in table.render()
    assert all("k" not in row for row in table.rows)


def test_without_views_there_is_no_alignment():
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    assert "alignment" not in compare_features({"some": Features(x, x)}, rng_key=RandomKey(0)).columns


def test_different_samples_are_not_compared():
    x = torch.ones(4, 2)
    with pytest.raises(NearfarError, match="different samples"):
        compare_features({"one": Features(x, x), "two": Features(x, x[:3])}, rng_key=RandomKey(0))


def test_diverged_features_are_named():
    x = torch.ones(4, 2)
    with pytest.raises(NearfarError, match="trained encoder, test features: 4 of 4 rows"):
        compare_features({"trained encoder": Features(x, x * float("nan"))}, rng_key=RandomKey(0))


def test_one_kind_of_labels_is_not_enough():
    x = torch.ones(4, 2)
    with pytest.raises(NearfarError, match="or for neither"):
        compare_features({"one": Features(x, x)}, torch.zeros(4, dtype=torch.long), rng_key=RandomKey(0))
