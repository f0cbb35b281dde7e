"""Stored numbers tell how they were measured, scripts know their settings, and printed commands are valid."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

import common  # noqa: E402
import provenance  # noqa: E402
from provenance import FIELDS, agrees, portable, rows_of, training_of  # noqa: E402
from stored_rows import RESULTS, load_script, result_names, script_names, script_of  # noqa: E402

STORING = {"write", "add", "keep_part"}
"""Functions of common.py that store results."""
PROGRAM = re.compile(r"python (benchmarks/[\w/]+\.py)([^`\n]*)")
MACHINE_PATH = re.compile(r"(?:^|[\s=,:'\"])(?:/|~/)(?:root|home|Users|tmp|work|mnt|data|opt|var)\b")


def source(name: str) -> ast.Module:
    return ast.parse((BENCHMARKS / f"{name}.py").read_text())


def called(tree: ast.AST) -> set[str]:
    """Return the names of the functions and methods that a module calls."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(f, "id", getattr(f, "attr", "")) for f in functions}


def stores(name: str) -> bool:
    """Return True if a script stores results, itself or through claim.py."""
    return bool(called(source(name)) & STORING) or name.startswith("claims/")


def stored_file(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", script_names())
def test_every_script_has_a_parser_and_tells_whether_a_row_is_current(name):
    script = load_script(name)
    assert isinstance(script.parser(), argparse.ArgumentParser)
    assert not stores(name) or callable(getattr(script, "is_current", None)), f"{name} stores results without is_current(row)"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_results_are_written_by_common_only(path):
    writing = [line for line in path.read_text().splitlines() if "write_text" in line and "RESULTS" in line]
    direct = "write_text(json.dumps" in path.read_text()
    assert path.name == "common.py" or not (direct or writing)


@pytest.mark.parametrize("name", result_names())
def test_every_measured_number_belongs_to_a_row_with_a_commit(name):
    """Lists of rows have no entry without one, and a file with one result has its own."""
    found = stored_file(name)
    listed = [row for key in ("rows", "runs", "quality") for row in found.get(key, [])]
    assert all("commit" in row for row in listed)
    parts = [part for key, part in found.items() if isinstance(part, dict) and key != "summary"]
    assert listed or "commit" in found or all(list(rows_of(part)) for part in parts)


@pytest.mark.parametrize("name", result_names())
def test_rows_with_a_date_have_every_field_and_no_file_has_a_path_of_a_machine(name):
    for row in rows_of(stored_file(name)):
        missing = [field for field in FIELDS if field not in row] if "date" in row else []
        assert not missing, f"{name}: a row has no {missing}"
    assert not MACHINE_PATH.search((RESULTS / f"{name}.json").read_text())


KNOWN_OTHERS = {"choose": 7, "cifar/moco-v2-0": 1, "qa": 3, "sound": 3, "throughput": 1, "transe": 1}
"""Rows of earlier or unknown settings. Another number means that a script's settings changed, or that rows were measured again."""


@pytest.mark.parametrize("name", result_names())
def test_stored_rows_have_the_settings_of_their_script(name):
    is_current, rows = load_script(script_of(name)).is_current, list(rows_of(stored_file(name)))
    assert rows, f"{name} has no object with a commit"
    assert sum(not is_current(row) for row in rows) == KNOWN_OTHERS.get(name, 0)


def changed(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return copies of a row, each with one setting changed, other than the precision."""
    copies = [row | {"settings": row["settings"] | {name: "other"}} for name in row["settings"] if name != "precision"]
    if isinstance(row.get("resolved"), dict):
        for part in ("hyperparameters", "train_config"):
            told = row["resolved"][part]
            copies += [row | {"resolved": row["resolved"] | {part: told | {name: "other"}}} for name in told if name != "precision"]
    return copies


@pytest.mark.parametrize("name", [name for name in result_names() if not name.startswith("cifar/")])
def test_a_row_of_another_setting_is_not_current(name):
    """Each setting that a row stores counts, but for the precision: that of sentence encoders follows the machine."""
    is_current = load_script(script_of(name)).is_current
    rows = [row for row in rows_of(stored_file(name)) if isinstance(row.get("settings"), dict) and is_current(row)]
    for row in rows[:1]:
        for other in changed(row):
            assert not is_current(other)


def test_a_cifar_row_of_another_setting_is_not_current():
    row = stored_file("cifar/simclr-0")
    is_current = load_script("cifar").is_current
    assert is_current(row)
    assert not is_current(row | {"train_config": row["train_config"] | {"lr": 0.5}})
    assert not is_current(row | {"hyperparameters": row["hyperparameters"] | {"temperature": 0.5}})


def test_settings_that_did_not_exist_must_have_their_default():
    row = {"settings": {"temperature": 0.2}, "resolved": training_of("simclr", {"temperature": 0.2}).resolved()}
    assert agrees(row, {"temperature": 0.2}, training_of("simclr", {"temperature": 0.2}))
    del row["resolved"]["train_config"]["decay_params"], row["resolved"]["hyperparameters"]["gray_prob"]
    assert agrees(row, {"temperature": 0.2}, training_of("simclr", {"temperature": 0.2}))
    assert not agrees(row, {"temperature": 0.2}, training_of("simclr", {"temperature": 0.2, "decay_params": "all"}))
    assert not agrees(row, {"temperature": 0.2}, training_of("simclr", {"temperature": 0.2, "gray_prob": 0.5}))
    assert not agrees(row | {"resolved": "unknown"}, {"temperature": 0.2}, training_of("simclr", {"temperature": 0.2}))


def printed_commands() -> list[tuple[str, str]]:
    """Return script and arguments of every command in the pages and in the docstrings of scripts."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    texts = [page.read_text() for page in pages]
    texts += [ast.get_docstring(ast.parse(path.read_text())) or "" for path in BENCHMARKS.rglob("*.py")]
    return sorted({(found[1], found[2]) for text in texts for found in PROGRAM.finditer(text)})


def variants(text: str) -> list[list[str]]:
    """Return the arguments of a printed command, without and with its optional parts. An explanation follows two spaces."""
    shown = re.split(r"\s{2,}|[,;.)](?:\s|$)", text.strip())[0]
    shown = re.sub(r"([\w-]+)\|[\w|-]+", r"\1", shown)  # cpu|cuda
    return [shlex.split(re.sub(r"\[[^]]*\]", "", shown)), shlex.split(re.sub(r"[\[\]]", "", shown))]


@pytest.mark.parametrize(("path", "text"), printed_commands())
def test_printed_commands_are_valid(path, text):
    script = load_script(path.removeprefix("benchmarks/").removesuffix(".py"))
    for args in variants(text):
        assert isinstance(script.parser().parse_args(args), argparse.Namespace)


def test_commands_are_found():
    found = printed_commands()
    assert len(found) > 60
    assert ("benchmarks/transe.py", "") in found
    assert variants(" --seed 0 1 [--device cpu|cuda] [--quick]   twice") == [
        ["--seed", "0", "1"],
        ["--seed", "0", "1", "--device", "cpu", "--quick"],
    ]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    return tmp_path


def row(**more: Any) -> dict[str, Any]:
    return {"seed": 0, **provenance.provenance({"lr": 0.1}, "abc"), **more}


def test_rows_without_provenance_are_refused(results):
    with pytest.raises(ValueError, match="the row has no commit, modified, command"):
        common.add("x", {"seed": 0}, ("seed",), lambda rows: {})
    with pytest.raises(ValueError, match="no row has all of"):
        common.write("x", {"score": 1})
    with pytest.raises(ValueError, match="the row has no settings"):
        common.keep_part("x", "runs", {k: v for k, v in row().items() if k != "settings"}, ("runs", "score", "mean"))
    assert not list(results.glob("*.json"))


def test_a_row_replaces_only_that_of_its_seed(results):
    for seed, score in ((1, 0.5), (0, 0.25), (1, 0.75)):
        common.add("x", row(seed=seed, score=score), ("seed",), lambda rows: {"count": len(rows)})
    assert [(r["seed"], r["score"]) for r in common.known("x")] == [(0, 0.25), (1, 0.75)]
    assert common.stored("x")["count"] == 2
    assert common.is_measured("x", lambda r: agrees(r, {"lr": 0.1}), seed=1)
    assert not common.is_measured("x", lambda r: agrees(r, {"lr": 0.2}), seed=1)


def test_the_mean_of_a_part_is_over_rows_of_the_same_settings(results):
    for seed, score, lr in ((0, 0.25, 0.1), (1, 0.75, 0.1), (1, 9.0, 0.2), (0, 0.5, 0.1)):
        common.keep_part("x", "runs", row(seed=seed, score=score, settings={"lr": lr}), ("runs", "score", "mean"))
    assert common.stored("x")["mean"] == {"mean": 0.625, "std": pytest.approx(0.1767767)}
    assert len(common.stored("x")["runs"]) == 3


def test_paths_of_the_machine_are_not_stored(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "DATA", tmp_path / "data")
    monkeypatch.setattr(
        sys, "argv", [str(BENCHMARKS / "dim.py"), "--data", str(tmp_path / "data" / "cifar10"), "--set=init=/a/b/run", "--part", "1/4"]
    )
    assert provenance.command() == "python benchmarks/dim.py --data $NEARFAR_DATA/cifar10 --set=init=run --part 1/4"
    given = {"encoder": f"hf:{tmp_path}/data/minilm", "other": tmp_path / "x", "names": ("sound/esc10", "~/secret/model"), "share": 0.5}
    told = {"encoder": "hf:$NEARFAR_DATA/minilm", "other": "x", "names": ["sound/esc10", "model"], "share": 0.5}
    assert portable(given) == told
    assert provenance.provenance(given, "abc")["settings"] == told


def test_arguments_with_spaces_are_quoted(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "claims" / "head.py"), "--data", "a b"])
    assert provenance.command() == "python benchmarks/claims/head.py --data 'a b'"


def test_the_commit_comes_from_git_or_the_environment(monkeypatch, tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (tmp_path / "nearfar").mkdir()
    (tmp_path / "nearfar" / "a.py").write_text("")
    monkeypatch.delenv("NEARFAR_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "ROOT", tmp_path.resolve())
    assert provenance.code_version() == ("unknown", "unknown")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Add"], check=True)
    head = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert provenance.code_version() == (head, False)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "x.json").write_text("{}")
    assert provenance.code_version() == (head, False), "new results do not change the code"
    (tmp_path / "nearfar" / "b.py").write_text("")
    assert provenance.code_version() == (head, True)
    monkeypatch.setenv("NEARFAR_COMMIT", "abc1234")
    assert provenance.code_version() == ("abc1234", True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path.resolve() / "nearfar")
    assert provenance.code_version() == ("abc1234", "unknown")


def test_stored_digits_can_be_ranked_without_labels():
    """`choose.py --stored` reads rows of every other benchmark, methods with one view left out."""
    found = load_script("choose").stored_rows()
    assert {"simclr", "byol: BYOL", "head: no head"} <= {row["variant"] for row in found}
    assert not {"dim", "cpc-vision", "supcon"} & {row["variant"] for row in found}
    assert load_script("choose").summary(found)["digits, stored, all variants"]["variants"]["mean"] > 30
