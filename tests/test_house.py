"""The house: examples run, docs are fresh, README's snippets hold, the wheel works alone, nothing heavy is imported by accident."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1", **env}
    )


def test_there_are_at_least_three_examples_and_they_are_short():
    assert len(EXAMPLES) >= 3
    assert all(path.read_text().count("\n") < 60 for path in EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.name != "own_method.py"], ids=lambda p: p.name)
def test_examples_run(path, tmp_path):
    done = run(sys.executable, "-W", "error", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= 3


@pytest.mark.slow
def test_a_recipe_in_a_users_file_trains_resumes_and_encodes(tmp_path):
    command = [sys.executable, "-m", "nearfar"]
    own = ROOT / "examples" / "own_method.py"
    flags = ["--data", "digits", "--steps", 4, "--batch-size", 32, "--temperature", 0.3, "--out", "run"]
    done = run(*command, "fit", own, *flags, cwd=tmp_path)
    assert f"`nearfar eval run --recipe {own}`" in done.stderr
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["temperature"] == pytest.approx(0.3, abs=0.01)
    done = run(*command, "embed", "run", "--data", "digits", "--out", "v.npy", cwd=tmp_path)
    assert done.returncode == 2
    assert "if you trust it" in done.stderr, "a run's folder alone never makes a file of code run"
    done = run(*command, "embed", "run", "--recipe", own, "--data", "digits", "--out", "v.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def result_row(recipe: str, seed: int, points: float) -> dict:
    """A row without settings whose trained encoder has this many points more than its baseline, in every column."""
    results = [
        {"representation": name, "baseline": name.startswith("un"), "few_labels": value, "linear": value, "knn": value}
        for name, value in (("untrained encoder", 0.5), ("trained encoder", 0.5 + points / 100))
    ]
    settings = {"hyperparameters": {}, "train_config": {}, "protocol": {"linear": None}}
    return {"recipe": recipe, "method": recipe, "seed": seed, "results": results, **settings}


def test_a_claim_counts_its_own_seeds_and_names_rows_of_one_seed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import status

    rows = {"digits": {"rows": [result_row("pirl", 0, 10), *(result_row("simclr", seed, 10) for seed in range(3))]}}
    rows |= {f"cifar/simclr-{seed}": result_row("simclr", seed, 45) for seed in range(3)}
    rows |= {"cifar/supcon-0": result_row("supcon", 0, 45)}

    def states(claim: str) -> list[str]:
        lines = [line.strip("| ").split(" | ") for line in status.status(tmp_path, rows.get).splitlines()]
        return [line[-1] for line in lines if line[0].startswith(claim)]

    assert states("`pirl` on digits") == ["**open**: 1 of 3 seeds"]
    assert states("`simclr` on digits") == ["proven"]
    assert [state.startswith("proven, one seed") for state in states("`supcon` on CIFAR-10")] == [True]
    assert [state.startswith("proven, one seed") for state in states("`simclr` on CIFAR-10")] == [False] * 6
    rows["cifar/supcon-1"] = result_row("supcon", 1, 45)
    assert ["one seed" in state for state in states("`supcon` on CIFAR-10")] == [False]


@pytest.mark.slow
def test_tables_in_readme_and_docs_are_fresh():
    done = run(sys.executable, "docs/generate.py", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_names_only_commands_and_flags_that_exist():
    from nearfar.cli.fit_flags import build_fit_parser
    from nearfar.cli.main import list_commands
    from nearfar.recipes.method_summary import read_method_summary

    text = (ROOT / "README.md").read_text()
    used = set(re.findall(r"nearfar ([a-z]+) ", text)) - {"nearfar"}
    assert used & set(list_commands())
    assert set(re.findall(r"^    nearfar ([a-z]+)", text, re.MULTILINE)) <= set(list_commands())
    flags = {f for action in build_fit_parser(read_method_summary("simclr"))._actions for f in action.option_strings}
    asked = {f for line in re.findall(r"nearfar fit[^`#\n]*", text) for f in re.findall(r"--[a-z-]+", line)}
    assert asked <= flags


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    code = "import sys, nearfar; print([m for m in ('torch', 'numpy', 'sklearn', 'transformers', 'rich') if m in sys.modules])"
    assert run(sys.executable, "-c", code, cwd=tmp_path).stdout.strip() == "[]"


@pytest.mark.slow
def test_training_needs_neither_rich_nor_transformers_nor_pyarrow_nor_tensorboard(tmp_path):
    code = (
        "import sys\n"
        "for name in ('rich', 'transformers', 'pyarrow', 'tensorboard', 'plotly', 'faiss', 'tyro'): sys.modules[name] = None\n"
        "from nearfar.cli.main import main\n"
        "code = main(['fit', 'simclr', '--tiny', '--steps', '2', '--batch-size', '16', '--out', 'run'])\n"
        "sys.exit(code or main(['eval', 'run']))\n"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trained encoder" in done.stdout


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path):
    """Built, installed into a new environment, run from an empty folder. Dependencies are lent by the environment of the tests."""
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("nearfar-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "nearfar/py.typed" in names
    assert "nearfar/recipes/vision/simclr.py" in names
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nearfar" / "reports" / "templates").iterdir()}
    assert templates <= set(names)
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "docs"))]
    assert run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path).returncode == 0
    python = tmp_path / "env" / "bin" / "python"
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (packages / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    installed = run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", packages, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    away = tmp_path / "away"
    away.mkdir()
    where = run(python, "-c", "import nearfar; print(nearfar.__file__)", cwd=away).stdout
    assert str(packages) in where
    done = run(python, "-m", "nearfar", "fit", "simclr", "--tiny", "--steps", 2, "--batch-size", 16, "--out", "run", cwd=away)
    assert done.returncode == 0, done.stderr
    code = "from nearfar.reports.report import ReportContent, render_report; print(render_report(ReportContent(title='bare')))"
    assert "<h1>bare</h1>" in run(python, "-c", code, cwd=away).stdout
    listed = json.loads(run(python, "-m", "nearfar", "list", "--json", cwd=away).stdout)
    assert {"simclr", "moco", "moco-v2", "byol", "barlow-twins"} <= {row["name"] for row in listed}


def test_nothing_unpickles_and_nothing_draws_without_a_key():
    against = []
    drawing = re.compile(
        r"torch\.(rand|randn|randint|randperm|bernoulli)\(|np\.random\.|\brandom\.(random|randint|choice|shuffle|sample)\("
    )
    loading = re.compile(r"pickle\.load|joblib\.load|torch\.load\((?!.*weights_only=True)|allow_pickle=True|\beval\(|\bexec\(")
    for path in (ROOT / "nearfar").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("#")[0]
            if drawing.search(code) or (loading.search(code) and ".eval(" not in code):
                against.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not against, "\n".join(against)
