"""Suites of `nearfar eval`: discovery, rows, intervals, indexes and refusals."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from senteval_files import write_senteval
from sklearn.metrics import adjusted_rand_score

import nearfar
from nearfar.api.index_subject import IndexSubject
from nearfar.api.run_suites import run_suites
from nearfar.api.suite_subject import RunSubject, wilson_interval
from nearfar.api.suites import list_suites, load_suite
from nearfar.cli.main import main
from nearfar.core import UsageError
from nearfar.index import build_index

FOLDER = Path(nearfar.__file__).parent / "api" / "suites"
SMALL = {"preset": "tiny", "steps": 2, "batch_size": 16}


@cache
def images() -> nearfar.Model:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    pixels = rng.integers(0, 80, (120, 8, 8)) + 80 * labels[:, None, None]
    return nearfar.fit("simclr", (pixels.astype(np.uint8), labels), steps=2, batch_size=16, encoder="convnet")


@pytest.fixture
def image_run(tmp_path) -> str:
    labels = np.arange(120) % 3
    pixels = np.random.default_rng(0).integers(0, 80, (120, 8, 8)) + 80 * labels[:, None, None]
    np.savez(tmp_path / "images.npz", x=pixels.astype(np.uint8), y=labels)
    nearfar.fit("simclr", str(tmp_path / "images.npz"), out=tmp_path / "run", steps=2, batch_size=16)
    return str(tmp_path / "run")


def test_every_file_is_a_suite_with_a_purpose():
    suites = list_suites()
    assert set(suites) == {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    for name, purpose in suites.items():
        assert purpose.endswith(".")
        suite = load_suite(name)
        assert hasattr(suite, "COLUMNS") == hasattr(suite, "KEY")
        assert hasattr(suite, "COLUMNS") or (callable(suite.measure) and callable(suite.explain_skip))


def test_an_unknown_suite_is_refused_with_a_suggestion(image_run, capsys):
    assert main(["eval", image_run, "-q", "--suite", "clusterin"]) == 2
    assert "Did you mean 'clustering'" in capsys.readouterr().err


def test_several_suites_give_one_object(image_run, capsys):
    assert main(["eval", image_run, "-q", "--json", "--suite", "clustering", "--suite", "geometry", "--suite", "verification"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"protocol", "rows"}
    assert [*dict.fromkeys(row["suite"] for row in found["rows"])] == ["clustering", "geometry", "verification"]
    for row in found["rows"]:
        assert row.keys() == {"suite", "system", "metric", "value", "low", "high", "seeds"}
    assert {row["system"] for row in found["rows"]} >= {"raw pixels", "untrained encoder", "trained encoder"}


def test_data_without_labels_run_the_suites_that_need_none(tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8)).astype(np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    nearfar.fit("simclr", str(tmp_path / "images.npy"), out=tmp_path / "run", steps=2, batch_size=16)
    assert main(["eval", str(tmp_path / "run"), "-q", "--json"]) == 0
    assert {row["suite"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"geometry"}
    assert main(["eval", str(tmp_path / "run"), "-q", "--suite", "clustering"]) == 2
    assert "--suite clustering does not apply to SimCLR, 2 steps: it needs one label for each sample" in capsys.readouterr().err


def test_default_rows_equal_the_result_table(image_run):
    model = nearfar.load(image_run)
    report, table = run_suites(RunSubject(model)), nearfar.evaluate_model(model)
    values = {(row.system, row.metric): row.value for row in report.rows}
    for result in table.results:
        for column in table.columns:
            if column in result:
                assert values[result["representation"], column] == result[column]


def test_accuracies_have_the_interval_of_wilson():
    for share, n in ((0.0, 10), (0.5, 40), (0.97, 359), (1.0, 7)):
        expected = binomtest(round(share * n), n).proportion_ci(method="wilson")
        assert wilson_interval(round(share * n) / n, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_few_labels_have_the_interval_of_their_draws(image_run):
    report = run_suites(RunSubject(nearfar.load(image_run)))
    assert report.table is not None
    few = next(row for row in report.rows if row.metric == "few_labels" and row.system == "trained encoder")
    std = next(r for r in report.table.results if r["representation"] == "trained encoder")["few_labels_std"]
    assert few.high is not None
    assert few.high - few.value == pytest.approx(1.96 * std / 10**0.5, rel=1e-4)


def test_the_vectors_of_an_index_are_measured(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    vectors = (np.eye(3)[labels] * 4 + rng.normal(size=(60, 3))).astype(np.float32)
    from nearfar.index.row_table import RowTable

    table = RowTable.resolve([f"item {i}" for i in range(60)], 60, 0)
    build_index(vectors, table, tmp_path / "index")
    assert main(["eval", str(tmp_path / "index"), "-q", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["suite"] for row in found["rows"]} == {"geometry"}, "the rows have no labels"
    assert main(["eval", str(tmp_path / "index"), "-q", "--suite", "probe"]) == 2
    assert "it measures models, not indexes" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "index"), "-q", "--k", "3"]) == 2
    assert "--k is for runs" in capsys.readouterr().err


def test_a_labeled_index_is_clustered(image_run, tmp_path):
    nearfar.index_data(image_run, str(Path(image_run).parent / "images.npz"), tmp_path / "index")
    index = nearfar.open_index(tmp_path / "index")
    index.delete([0, 1, 2])
    subject = IndexSubject(index)
    rows = {(row.suite, row.metric): row.value for row in run_suites(subject).rows}
    assert {suite for suite, _ in rows} == {"clustering", "geometry", "metric", "verification"}
    assert len(subject.get_test_labels()) == 117
    assert 0.3 < rows["metric", "recall at 1"] <= 1


def test_clustering_scores_those_of_scikit_learn():
    subject = RunSubject(images(), (blocks(), np.arange(60) % 2))
    rows = run_suites(subject, ["clustering"]).rows
    raw = {row.metric: row.value for row in rows if row.system == "raw pixels"}
    assert raw["accuracy"] == raw["adjusted Rand index"] == adjusted_rand_score([0, 1], [1, 0]) == 1.0


def blocks() -> np.ndarray:
    """Return images of two kinds that every clustering tells apart."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 40, (60, 8, 8))
    pixels[::2, :, :4] += 200
    pixels[1::2, :4] += 200
    return pixels.astype(np.uint8)


def test_corruptions_lower_the_accuracy_of_raw_pixels(monkeypatch):
    monkeypatch.setattr("nearfar.api.suites.corruptions.MEASURED_SEVERITIES", (5,))
    rows = run_suites(RunSubject(images(), (blocks(), np.arange(60) % 2)), ["corruptions"]).rows
    raw = {row.metric: row.value for row in rows if row.system == "raw pixels"}
    assert raw["clean"] == 1.0
    assert raw["mean of corruptions"] < 1.0
    assert len(raw) == 17
    assert {row.system for row in rows} == {"raw pixels", "untrained encoder", "trained encoder"}


def test_sentences_are_compared_with_human_scores(tmp_path, capsys):
    folder = write_senteval(tmp_path / "senteval")
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"This is line number {i} of a small text.\n" for i in range(60)))
    nearfar.fit("simcse-unsup", str(text), out=tmp_path / "run", steps=2, batch_size=8, max_length=8, vocab_size=300)
    run = str(tmp_path / "run")
    assert main(["eval", run, "-q", "--suite", "sts"]) == 2
    assert "name SentEval's folder with --data" in capsys.readouterr().err
    assert main(["eval", run, "-q", "--json", "--suite", "sts", "--data", str(folder or tmp_path / "senteval")]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    systems = {row["system"] for row in rows}
    assert systems == {"tf-idf", "letter trigrams", "random word vectors", "untrained encoder", "trained encoder"}
    by_set = [row["value"] for row in rows if row["system"] == "tf-idf" and row["metric"] != "average"]
    average = next(row["value"] for row in rows if row["system"] == "tf-idf" and row["metric"] == "average")
    assert average == pytest.approx(np.mean(by_set))


def test_the_help_lists_all_suites(capsys):
    assert main(["eval", "--help"]) == 0
    out = capsys.readouterr().out
    for name, purpose in list_suites().items():
        assert re.search(rf"^  {name} +{re.escape(purpose)}$", out, re.MULTILINE)


def test_penalties_are_chosen_on_the_validation_nodes(tmp_path):
    rng = np.random.default_rng(0)
    n, labels = 90, np.arange(90) % 3
    masks = {name: np.arange(n) // 30 == i for i, name in enumerate(("train", "val", "test"))}
    x = (np.eye(3)[labels] + rng.normal(size=(n, 3))).astype(np.float32)
    edges = np.stack([np.arange(n), (np.arange(n) + 3) % n])
    np.savez(tmp_path / "graph.npz", x=x, edge_index=edges, y=labels, **masks)
    model = nearfar.fit("dgi", str(tmp_path / "graph.npz"), steps=2)
    table = nearfar.evaluate_model(model)
    raw = next(row for row in table.results if row["representation"] == "raw features")
    best = choose_by_loop(torch.from_numpy(x), torch.from_numpy(labels), masks)
    assert raw["linear_C"] == best[0]
    assert raw["linear"] == pytest.approx(best[1])
    assert "chosen on the validation split" in table.render()
    both = masks | {"val": masks["test"]}
    np.savez(tmp_path / "wrong.npz", x=x, edge_index=edges, y=labels, **both)
    with pytest.raises(UsageError, match="30 nodes are for validation and for testing"):
        nearfar.fit("dgi", str(tmp_path / "wrong.npz"), steps=2)


def choose_by_loop(x: torch.Tensor, y: torch.Tensor, masks: dict[str, np.ndarray]) -> tuple[float, float]:
    """Return the penalty with the best validation accuracy, and its test accuracy."""
    from nearfar.evaluate import fit_linear

    train, val, test = (torch.from_numpy(masks[name].nonzero()[0]) for name in ("train", "val", "test"))
    found = []
    for exponent in range(-3, 6):
        classifier = fit_linear(x[train], y[train], 10.0**exponent)
        val_share, test_share = (float((classifier.predict(x[part]) == y[part]).double().mean()) for part in (val, test))
        found.append((val_share, -exponent, 10.0**exponent, test_share))
    best = max(found)
    return best[2], best[3]
