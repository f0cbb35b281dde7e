"""Several runs in one table: rows over seeds, costs, settings that differ, numbers that do not compare, a page that needs nothing else."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from test_report import Page

from nearfar.api import compare as compare_module
from nearfar.api.compare import compare_runs, read_or_measure_results
from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.api.load import load
from nearfar.cli.main import main
from nearfar.core import NearfarError, UsageError
from nearfar.evaluate.stored_results import read_stored_results, store_results
from nearfar.reports.comparison import render_comparison, write_comparison
from nearfar.train.run_folder import RunFolder, compute_training_seconds

SMALL = {"steps": 3, "batch_size": 32, "lr": 2e-3}


def images(path: Path, count: int) -> str:
    digits = load_digits()
    np.savez(path, x=(digits.images[:count] * 15).astype(np.uint8), y=digits.target[:count])
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Two seeds of SimCLR, one of another temperature, one of another recipe, one on other data."""
    folder = tmp_path_factory.mktemp("runs")
    data, other = images(folder / "data.npz", 150), images(folder / "other.npz", 120)
    asked = {
        "a0": ("simclr", data, {}), "a1": ("simclr", data, {"seed": 1}), "b": ("simclr", data, {"temperature": 0.1}), "c": ("byol",
        data, {}),
        "elsewhere": ("simclr", other, {}),
    }  # fmt: skip
    for name, (recipe, source, settings) in asked.items():
        model = fit(recipe, source, out=folder / name, **SMALL, **settings)
        store_results(model, measure_model(model, draws=2, per_class=2).table)
    return {name: folder / name for name in asked}


@pytest.mark.slow
def test_runs_that_differ_in_the_seed_are_one_row_with_its_spread(runs):
    found = compare_runs([runs["a0"], runs["b"], runs["a1"]])
    assert [row.name for row in found.rows] == ["simclr temperature=0.5", "simclr temperature=0.1"]
    assert [len(row.runs) for row in found.rows] == [2, 1]
    assert found.differing_settings == {"temperature": ["0.5", "0.1"]}
    assert found.incompatibilities == []
    kept = [json.loads((runs[name] / "results.json").read_text())["results"] for name in ("a0", "a1")]
    knn = [next(r["knn"] for r in results if not r["baseline"]) for results in kept]
    shown = f"{100 * statistics.fmean(knn):.1f} ± {100 * statistics.stdev(knn):.1f}"
    assert found.rows[0].format_cell("knn") == shown
    assert shown in found.render()
    row = json.loads(found.to_json())["rows"][0]
    assert row["knn"]["mean"] == pytest.approx(statistics.fmean(knn))
    assert row["knn"]["std"] == pytest.approx(statistics.stdev(knn))
    assert row["n"] == 2
    assert row["seeds"] == [0, 1]
    assert "±" not in found.rows[1].format_cell("knn"), "one run has no spread"


def test_floors_count_equal_baselines_once(runs):
    found = compare_runs([runs["a0"], runs["b"], runs["a1"]])
    assert {row.name: len(row.values) for row in found.baselines} == {"raw pixels": 2, "raw pixels, scaled": 2, "untrained encoder": 2}


def test_costs_are_what_the_runs_say(runs):
    row = compare_runs([runs["a0"], runs["b"]]).rows[0]
    model = load(runs["a0"])
    assert row.get_values("samples") == [3 * 32]
    assert row.get_values("parameters") == [sum(p.numel() for p in model.net.parameters())]
    assert row.get_values("encoder_parameters") == [sum(p.numel() for p in model.net.encoder.parameters())]
    seconds = model.metrics[-1]["time"] if "time" in model.metrics[-1] else max(m["time"] for m in model.metrics if "time" in m)
    assert row.get_values("seconds") == [seconds]
    assert row.get_values("rate") == [pytest.approx(96 / seconds)]
    follower = compare_runs([runs["c"], runs["a0"]]).rows[0]
    assert follower.get_values("parameters")[0] < sum(p.numel() for p in load(runs["c"]).net.parameters()), (
        "a copy that follows is not trained"
    )


def test_towers_of_other_seeds_compare_though_their_splits_count_otherwise(tmp_path):
    """Equal questions are one: how many there are depends on which rows the seed drew for the test."""
    rows = [{"question": f"what about number{i // 3}", "passage": f"about number{i // 3} it says thing{i}"} for i in range(60)]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folders = [tmp_path / f"run{seed}" for seed in range(3)]
    for seed, folder in enumerate(folders):
        fit(
            "dpr", str(tmp_path / "asked.jsonl"), seed=seed, out=folder, encoder="bag", vocab_size=300, max_length=16, steps=1, batch_size=8
        )
    found = compare_runs(folders)
    assert len({run.stored_results.table.protocol["questions"] for run in found.rows[0].runs}) > 1
    assert found.incompatibilities == []
    towers = load(folders[0]).net
    assert found.rows[0].get_values("encoder_parameters") == [sum(p.numel() for p in towers.parameters())] * 3


def test_the_clock_of_a_resumed_run_is_added_up():
    assert compute_training_seconds([{"time": 1.0}, {"time": 5.0}, {"spread": 1}, {"time": 0.5}, {"time": 2.0}]) == 7.0
    assert compute_training_seconds([{"time": 3.0}]) == 3.0
    assert compute_training_seconds([]) is None


def test_other_data_are_shown_side_by_side_and_said(runs, capsys):
    assert main(["compare", str(runs["a0"]), str(runs["elsewhere"]), "-q"]) == 1
    said = capsys.readouterr()
    assert "NOT COMPARABLE: different data" in said.out
    assert "are not comparable" in said.err
    assert len(re.findall(r"^simclr data=", said.out, re.MULTILINE)) >= 2
    assert main(["compare", str(runs["a0"]), str(runs["elsewhere"]), "--json", "-q"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["comparable"] is False
    assert "other.npz" in found["differences"][0]


def test_data_that_changed_between_runs_are_said(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs["b"], copy)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["fingerprint"] = "0" * 16
    (copy / "config.json").write_text(json.dumps(config))
    store_results(load(copy), read_or_measure_results(runs["b"])[0].table)
    assert any("changed between runs of seed 0" in line for line in compare_runs([runs["a0"], copy]).incompatibilities)


def test_results_are_measured_once_and_only_trusted_for_the_state_they_are_of(runs, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(runs["a0"], copy)
    (copy / "results.json").unlink()
    found = compare_runs([copy, runs["b"]])
    assert found.notes[0] == "Evaluated now, results kept in results.json: copy."
    assert any("different protocol, draws: 10 (copy); 2 (b)" in line for line in found.incompatibilities)
    monkeypatch.setattr(compare_module, "evaluate_model", None)
    assert read_or_measure_results(copy) == (found.rows[0].runs[0].stored_results, False)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"nearfar": "other"}))
    assert read_stored_results(RunFolder.open(copy)) is None, "another configuration"
    (copy / "results.json").write_text("{}")
    with pytest.raises(NearfarError, match="damaged"):
        read_stored_results(RunFolder.open(copy))


def test_eval_leaves_its_results_in_the_run(runs, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(runs["a0"], copy)
    (copy / "results.json").unlink()
    assert main(["eval", str(copy), "--json", "-q"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = read_stored_results(RunFolder.open(copy))
    assert found is not None
    assert found.table is not None
    values = {(row["system"], row["metric"]): row["value"] for row in printed["rows"]}
    results = {row["representation"]: row for row in found.table.results}
    assert {system for system, _ in values} == set(results)
    assert all(results[system][metric] == value for (system, metric), value in values.items())
    assert {name: printed["protocol"][name] for name in found.table.protocol} == found.table.protocol


def test_a_run_that_cannot_be_measured_has_a_cost_and_a_reason(runs, tmp_path):
    pictures = torch.arange(12 * 64, dtype=torch.uint8).view(12, 8, 8)
    fit("simclr", pictures, out=tmp_path / "array", steps=2, batch_size=8)
    found = compare_runs([tmp_path / "array", runs["a0"]])
    assert any("array has no results: " in note and "was trained on an array" in note for note in found.notes)
    assert found.rows[0].format_cell("knn") == "–"
    assert found.rows[0].get_values("samples") == [16]
    assert found.incompatibilities


def test_mistakes_are_one_message(runs, tmp_path):
    with pytest.raises(UsageError, match="at least two different runs"):
        compare_runs([runs["a0"], runs["a0"]])
    with pytest.raises(UsageError, match="is not a run"):
        compare_runs([runs["a0"], tmp_path])


def test_the_page_is_whole_and_loads_nothing(runs, tmp_path, capsys):
    path = tmp_path / "page.html"
    asked = [str(runs[name]) for name in ("a0", "a1", "b", "c")]
    assert main(["compare", *asked, "--html", str(path), "-q"]) == 0
    html = path.read_text()
    page = Page(html)
    assert page.open == []
    assert page.ids == {"table", "figure", "settings"}
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "use"}
    assert "http" not in html.replace("http-equiv", "")
    figures = [a["aria-label"] for tag, a in page.elements if tag == "svg"]
    assert len(figures) == 2
    assert "alignment" in figures[0]
    assert "nan" not in html.lower().replace("finance", "")
    assert html.count('r="7"') == 4, "a ring for each of three rows and for the untrained encoder"


def test_the_page_says_what_does_not_compare_and_escapes_names(runs, tmp_path):
    evil = tmp_path / "<script>x"
    shutil.copytree(runs["elsewhere"], evil)
    found = compare_runs([runs["a0"], evil])
    write_comparison(tmp_path / "page.html", found)
    assert "<script>" not in render_comparison(found)
    assert "Not comparable" in render_comparison(found)


def test_a_repetition_is_no_further_seed(runs, tmp_path):
    shutil.copytree(runs["a0"], tmp_path / "copy")
    found = compare_runs([runs["a0"], runs["a1"], tmp_path / "copy"])
    assert [len(row.values) for row in found.rows] == [2]
    assert any("copy repeats seed 0 of a0" in note for note in found.notes)
    assert any("fewer than 3 seeds" in note for note in found.notes)
    alone = compare_runs([runs["a0"], tmp_path / "copy"])
    assert "±" not in alone.rows[0].format_cell("knn")
