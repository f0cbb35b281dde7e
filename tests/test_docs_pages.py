"""Generated pages: what docs/*.py say about given results, and that stored results support the sentences written about them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BANK = "trained encoder and head, neighbours in the bank"


@pytest.fixture
def module(monkeypatch) -> Callable[[str], ModuleType]:
    """Return a function that imports a module of docs/."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module


@pytest.fixture
def table(module) -> Callable[[list[str], list[list[str]]], str]:
    return module("generate").markdown


def cells(page: str, start: str) -> list[str]:
    """Return the cells of the only table row that begins with `start`."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_status_lists_every_gpu_check(module, tmp_path):
    checks = [
        {"name": "resume: moco, SGD", "ok": True, "detail": "310 tensors"},
        {"name": "one epoch in bf16: dim", "ok": False, "detail": "RuntimeError: a | b\nsecond line"},
    ]
    found = {"commit": "abc1234", "command": "python benchmarks/gpu.py --data cifar10", "checks": checks}
    found["machine"] = {"gpu": "NVIDIA H200", "torch": "2.11.0", "cores": 16}
    page = module("status").status(tmp_path, {"gpu_checks": found}.get)
    section = page[page.index("## Checked on a GPU") :]
    assert cells(section, "resume: moco, SGD") == ["resume: moco, SGD", "passed", "310 tensors"]
    assert "| one epoch in bf16: dim | **failed** | RuntimeError: a \\| b second line |" in section
    assert "`python benchmarks/gpu.py --data cifar10` at commit abc1234, NVIDIA H200, torch 2.11.0." in section


def test_status_says_that_gpu_checks_have_not_been_run(module, tmp_path):
    page = module("status").status(tmp_path, lambda name: None)
    assert page.endswith("## Checked on a GPU\n\nThe checks of `benchmarks/gpu.py` have not been run.\n")


def test_gain_of_hybrid_search_is_that_of_the_default(module):
    lows = {"rank fusion": 0.5, "half and half": 0.01}
    differences = {f"BM25 + encoder before training, {how} - BM25": {"MRR": {"low": low}} for how, low in lows.items()}
    differences["BM25 + DPR - BM25"] = {"MRR": {"low": 0.7}}
    assert module("status").hybrid_gain({"summary": {"xquad": {"differences": differences}}}) == 0.01


@pytest.mark.parametrize(("in_bank", "state"), [(0.80, "**short**"), (0.81, "proven")])
def test_npid_is_compared_with_the_published_number_in_the_bank(module, tmp_path, in_bank, state):
    row = json.loads((RESULTS / "cifar" / "instance-discrimination-npid-0.json").read_text())
    for result in row["results"]:
        result["knn"] = in_bank if result["representation"] == BANK else 0.99 if "head" in result["representation"] else 0.1
    page = module("status").status(tmp_path, {"cifar/instance-discrimination-npid-0": row}.get)
    claim = "`instance-discrimination-npid` on CIFAR-10, ResNet-18, 200 epochs, seed 0: kNN, bank"
    assert cells(page, claim)[1:3] == [f"{100 * in_bank:.2f}", "> 80.8"]
    assert cells(page, claim)[3].startswith(state)


def test_demonstration_of_moco_is_measured_on_head_outputs(module):
    results = [{"representation": "trained encoder", "knn": 0.9}, {"representation": "trained encoder and head", "knn": 0.84}]
    found = {"rows": [{"loss": "mean", "seed": 0, "results": []}, {"loss": "sum", "seed": 0, "results": results}]}
    assert module("results_cifar").demo_knn(found) == pytest.approx(84.0)
    assert module("results_cifar").demo_knn({"rows": found["rows"][:1]}) is None


def test_remarks_on_cifar_follow_stored_settings(module, table):
    cifar = module("results_cifar")
    rows = cifar.cifar_rows(ROOT)
    page = cifar.cifar(rows, table)
    assert "`instance-discrimination-npid`: exact softmax" in page
    assert "`swav`: two views of full size, no multi-crop (`small_crops=0`)" in page
    for row in rows:
        if row["method"] == "instance-discrimination-npid":
            row["hyperparameters"]["negatives"] = 4096
        if row["method"] == "swav":
            row["hyperparameters"]["small_crops"] = 6
    page = cifar.cifar(rows, table)
    assert "exact softmax" not in page
    assert "no multi-crop" not in page


def test_changed_settings_name_both_values(module):
    row = json.loads((RESULTS / "cifar" / "simclr-0.json").read_text())
    changed_settings = module("cifar_rows").changed_settings
    assert changed_settings(row) == {}
    row["train_config"]["lr"], row["hyperparameters"]["temperature"] = 9.0, 0.7
    assert changed_settings(row) == {"lr": (9.0, 0.12), "temperature": (0.7, 0.2)}


def test_emoji_page_reports_whether_trials_selected_the_settings(module, table):
    emoji = module("results_pictures").emoji
    found: dict[str, Any] = {"summary": [], "chosen": "wide", "settings": {"lr": 0.1, "prompts": ["{}"]}, "selection": None}
    assert "Settings: the defaults of the script (`lr=0.1`). No trials on validation emojis are stored." in emoji(found, table)
    found["selection"] = {"rows": [{"setting": "wide"}, {"setting": "wide"}, {"setting": "deep"}]}
    assert "Settings: *wide* (`lr=0.1`), the best of 2 tried on validation emojis." in emoji(found, table)


def test_sound_page_reports_settings_and_how_they_were_selected(module, table):
    mel = {"encoder": "mel", "lr": 0.001}
    found = {
        "summary": [],
        "grid": {
            "cpc-audio/esc10": {"first": {**mel, "same_clip_negatives": False}},
            "cpc-audio/fsdd": {"short": mel, "long": {**mel, "lr": 0.1}},
        },
        "rows": [
            {"experiment": "cpc-audio/esc10", "settings": {**mel, "same_clip_negatives": False}},
            {"experiment": "cpc-audio/fsdd", "settings": {**mel, "lr": 0.1}},
            {"experiment": "cpc-audio/fsdd"},
        ],
        "selection": {
            "rows": [
                {"experiment": "cpc-audio/esc10", "setting": "first"},
                {"experiment": "cpc-audio/fsdd", "setting": "short"},
                {"experiment": "cpc-audio/fsdd", "setting": "long"},
            ]
        },
    }
    page = module("results_sound").sound(found, table)
    assert cells(page, "`cpc-audio/esc10`")[1:] == ["first", "not compared", "log-mel bands", "no"]
    assert cells(page, "`cpc-audio/fsdd`")[1:] == ["long (stored for 1 of 2 rows)", "2, on other groups", "log-mel bands", "yes"]


def test_rows_on_different_questions_are_in_different_tables(module, table):
    found = json.loads((RESULTS / "qa.json").read_text())
    page = module("results_questions").questions(found, table)
    without, trained = page.split("\n\n")[:2]
    assert without.startswith("| XQuAD, no training, all 1,190 questions |")
    assert trained.startswith("| XQuAD, DPR, 578 to 631 test questions a seed |")
    assert "| DPR |" not in without
    assert "| BM25 |" not in trained
    assert cells(page, "DPR - BM25")[1] == "1,027"


def test_each_variant_of_a_claim_has_its_own_untrained_encoder(module, table, tmp_path):
    def row(variant: str, untrained: float) -> dict[str, Any]:
        measures = ("few_labels", "linear", "knn")
        return {"variant": variant, "seed": 0, **dict.fromkeys(measures, 0.9), "untrained": dict.fromkeys(measures, untrained)}

    folder = tmp_path / "benchmarks" / "results" / "claims"
    folder.mkdir(parents=True)
    rows = [row("plain", 0.5), row("wide", 0.5), row("deep", 0.7)]
    for name, kept in (("mixed", rows), ("same", rows[:2])):
        (folder / f"{name}.json").write_text(json.dumps({"claim": "A claim.", "axis": "", "common": {"data": "other"}, "rows": kept}))
    page = module("claims_page").claims_pages(tmp_path, table, None)["docs/claims.md"]
    assert cells(page, "untrained encoder of *deep*")[1] == "70.0"
    assert cells(page, "untrained encoder of the other variants")[1] == "50.0"
    assert cells(page, "untrained encoder")[1] == "50.0"


def test_stored_runs_of_byol_support_the_claim_that_is_written_about_them(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "claims"))
    spec = importlib.util.spec_from_file_location("byol_claim", ROOT / "benchmarks" / "claims" / "byol.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = json.loads((RESULTS / "claims" / "byol.json").read_text())
    assert found["claim"] == script.CLAIM.text

    def mean(variant: str, of: Callable[[dict], float]) -> float:
        values = [of(row) for row in found["rows"] if row["variant"] == variant]
        return sum(values) / len(values)

    names = {row["variant"] for row in found["rows"]}
    score = {name: mean(name, lambda row: row["few_labels"]) for name in names}
    gain = {name: score[name] - mean(name, lambda row: row["untrained"]["few_labels"]) for name in names}
    assert all(abs(score[name] - score["BYOL"]) < 0.01 for name in ("no predictor", "no slow target"))
    assert gain["no predictor, no slow target"] < 0
    assert gain["no batch norm"] < 0.005
    assert gain["no batch norm, no predictor"] > 0.05
