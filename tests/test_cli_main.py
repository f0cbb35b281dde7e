"""The command line in this process: mistakes, a method of the user's own from training to vectors."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.cli.main import GROUPS, list_commands, main

OWN = '''"""Own: two dimmed copies of an image are alike.

Claim: none.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from nearfar.core import Card, Net, Recipe, TrainConfig, Similarity


class Dimmed(Similarity):
    def read(self, data, rows, key):
        return data.read(rows.ids)

    def view(self, raw, rows, key):
        return {"v0": raw.float() / 255, "v1": raw.float() / 510}


@dataclass(frozen=True)
class Own(Recipe):
    card = Card("Own", "none", 2020, "image", *["?"] * 7, loss="distance", equation="x")
    weight: float = 1.0
    """How much it counts."""
    fail: Literal["no", "memory", "bug", "interrupt"] = "no"

    def similarity(self, net):
        return Dimmed()

    def build(self, sizes, encoder):
        return Net(encoder=encoder)

    def embed(self, net, x, key):
        return {"z0": net.encoder(x["v0"]), "z1": net.encoder(x["v1"])}

    def objective(self, net, z, key):
        if self.fail == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory.\\nTried to allocate 20 GiB")
        if self.fail == "interrupt":
            raise KeyboardInterrupt
        if self.fail == "bug":
            raise ZeroDivisionError("a bug of mine")
        return self.weight * (z["z0"] - z["z1"]).square().mean()


tiny = Own(), TrainConfig(data="digits", steps=3, batch_size=16)
'''


@pytest.fixture
def own(tmp_path) -> str:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return str(file)


@pytest.fixture(autouse=True)
def _logger():
    """The command line takes the logger over; other tests get it back."""
    logger = logging.getLogger("nearfar")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.level, logger.propagate, logger.handlers[:] = before


def run(argv: str | list[str], capsys) -> tuple[int, str, str]:
    code = main(argv.split() if isinstance(argv, str) else argv)
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("fitt", ["unknown command 'fitt'", "'fit'", "nearfar --help"]),
        ("--helpp", ["unknown flag '--helpp'", "'--help'"]),
        ("fit", ["name a recipe", "nearfar list"]),
        ("fit simclrr --data d --out r", ["unknown recipe 'simclrr'", "'simclr'"]),
        ("fit no/such.py --data d --out r", ["no/such.py"]),
        ("fit simclr --data d --out r --temperature abc", ["--temperature", "'abc'", "number"]),
        ("fit --temperature abc simclr --data d --out r", ["--temperature", "'abc'", "number"]),
        ("fit simclr --data d --out r --optimizer adam", ["--optimizer", "'adam'", "adamw, sgd, lars", "Did you mean 'adamw'"]),
        ("fit simclr --data d --out r --precision fp16", ["--precision", "'fp16'", "fp32, bf16"]),
        ("fit simclr --data d --out r --stepz 5", ["--stepz", "Did you mean '--steps'", "nearfar fit simclr --help"]),
        ("fit simclr --data d --out r --steps 2.5", ["--steps", "'2.5'", "whole number"]),
        ("fit simclr --data digits --out r --steps 0", ["--steps", "at least 1"]),
        ("fit simclr --data d --out r --steps 5 --epochs 2", ["--steps", "--epochs", "not both"]),
        ("fit simclr --tiny --paper --out r", ["--tiny", "--paper", "not both"]),
        ("fit simclr --data d", ["--out is missing"]),
        ("fit simclr --out r", ["--data is missing", "digits"]),
        ("fit simclr --paper --out r", ["--data is missing"]),
        ("fit simclr moco --tiny --out r", ["'moco'", "unexpected argument"]),
        ("fit simclr --data no-such-data --out r", ["no-such-data"]),
        ("fit simclr --tiny --out r --device tpu", ["--device", "tpu", "cuda"]),
        ("fit --resume r --steps 5", ["--resume", "leave out --steps"]),
        ("fit --resume r simclr", ["--resume", "leave out 'simclr'"]),
        ("fit --resume no-such-run", ["no-such-run", "not a run"]),
        ("fit --config no-such.json --out r", ["no-such.json"]),
        ("eval", ["required", "THING"]),
        ("eval no-such-run", ["no-such-run", "not a run"]),
        ("report no-such-run", ["no-such-run", "not a run"]),
        ("embed r --data d", ["required", "--out"]),
        ("embed r --data d --out v.npy --split valid", ["--split", "'valid'", "train, test, all"]),
        ("card mocco", ["'mocco'", "'moco'"]),
        ("list --modality imaje", ["--modality", "'imaje'", "'image'"]),
        ("demo --seed x", ["--seed", "'x'", "whole number"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(argv, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("nearfar: error: ")
    assert err.count("\n") == 1
    assert len(err) < 250
    for word in words:
        assert word in err
    assert not list(tmp_path.iterdir())


def test_help_names_every_command_and_each_explains_itself(capsys):
    code, text, _ = run("--help", capsys)
    assert code == 0
    assert text == run([], capsys)[1]
    assert len([line for line in text.splitlines() if line.startswith("  nearfar ")]) == 3
    for name, command in list_commands().items():
        assert f"  {name}" in text
        assert command.purpose in text
        assert command.group in GROUPS
        code, explained, err = run([name, "--help"], capsys)
        assert (code, err) == (0, "")
        assert explained.startswith(f"usage: nearfar {name} ")
        assert "--verbose" in explained


def test_a_method_of_the_users_own_from_training_to_vectors(own, capsys, tmp_path):
    folder = str(tmp_path / "run")
    code, out, err = run(["fit", "--weight", "2", own, "--tiny", "--out", folder, "--lr", "0.01"], capsys)
    assert (code, out) == (0, ""), err
    assert "step 3/3  loss " in err
    assert f"nearfar eval {folder}" in err
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["hyperparameters"]["weight"] == 2
    assert (config["train_config"]["lr"], config["train_config"]["steps"], config["train_config"]["batch_size"]) == (0.01, 3, 16)

    code, out, err = run(["fit", "--resume", folder], capsys)
    assert code == 2
    assert "if you trust it" in err
    code, out, err = run(["fit", own, "--resume", folder], capsys)
    assert code == 0
    assert "finished" in err
    code, _, err = run(["fit", own, "--tiny", "--out", folder], capsys)
    assert code == 2
    assert "--overwrite" in err
    again = str(tmp_path / "again")
    code, out, err = run(["fit", "--config", f"{folder}/config.json", "--out", again], capsys)
    assert code == 2
    assert "if you trust it" in err
    code, out, err = run(["fit", own, "--config", f"{folder}/config.json", "--steps", "2", "--out", again, "-q"], capsys)
    assert (code, out, err) == (0, "", "")
    assert json.loads(Path(again, "config.json").read_text())["train_config"] == config["train_config"] | {"steps": 2}

    code, out, err = run(
        ["embed", folder, "--recipe", own, "--data", "digits", "--out", str(tmp_path / "v.npy"), "--split", "test"], capsys
    )
    assert code == 0, err
    vectors = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert out == f"{tmp_path / 'v.npy'}: {len(vectors):,} vectors\n"
    code, out, err = run(["embed", folder, "--recipe", own, "--data", "digits", "--out", str(tmp_path / "v.txt")], capsys)
    assert (code, out) == (2, "")


@pytest.mark.slow
def test_eval_prints_a_table_or_pure_json_and_report_a_path(own, capsys, tmp_path):
    folder, data = str(tmp_path / "run"), str(tmp_path / "images.npz")
    labels = np.arange(150) % 3
    pixels = np.random.default_rng(0).integers(0, 80, (150, 8, 8)) + 80 * labels[:, None, None]
    np.savez(data, x=pixels.astype(np.uint8), y=labels)
    assert run(["fit", own, "--data", data, "--steps", "3", "--out", folder, "-q"], capsys) == (0, "", "")
    code, out, err = run(["eval", folder, "--recipe", own, "--json"], capsys)
    assert code == 0, err
    names = list(dict.fromkeys(row["system"] for row in json.loads(out)["rows"]))
    assert "trained encoder" in names
    code, out, err = run(["eval", folder, "--recipe", own, "--data", data, "--device", "cpu"], capsys)
    assert code == 0
    assert all(name in out for name in names)
    code, out, err = run(["report", folder, "--recipe", own], capsys)
    assert code == 0, err
    assert Path(out.strip()) == tmp_path / "run" / "report.html"
    assert Path(out.strip()).stat().st_size > 1000


def test_what_goes_wrong_in_a_run_is_one_line(own, capsys, tmp_path):
    code, _, err = run(["fit", own, "--tiny", "--out", str(tmp_path / "a"), "--fail", "memory"], capsys)
    assert code == 1
    assert "out of memory" in err.splitlines()[-1]
    assert "--chunk-size" in err
    assert "--batch-size" in err
    code, _, err = run(["fit", own, "--tiny", "--out", str(tmp_path / "b"), "--fail", "bug"], capsys)
    assert code == 1
    assert "Traceback" not in err
    assert "ZeroDivisionError: a bug of mine" in err
    assert "own.py, line" in err
    code, _, err = run(["fit", own, "--tiny", "--out", str(tmp_path / "c"), "--fail", "bug", "-v"], capsys)
    assert "Traceback" in err
    broken = tmp_path / "broken.py"
    broken.write_text("def oops(:\n")
    code, _, err = run(["card", str(broken)], capsys)
    assert (code, err) == (1, "nearfar: error: invalid syntax (broken.py, line 1)\n")
    code, _, err = run(["fit", own, "--tiny", "--out", str(tmp_path / "d"), "--fail", "interrupt"], capsys)
    assert code == 130
    assert err.splitlines()[-1] == f"nearfar: interrupted: `nearfar fit {own} --resume {tmp_path / 'd'}` resumes from here"


@pytest.mark.slow
def test_an_interrupted_training_says_how_to_go_on_and_goes_on(own, capsys, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "nearfar", "fit", own, "--tiny", "--steps", "100000", "--log-every", "1", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        metrics = folder / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == f"nearfar: interrupted: `nearfar fit {own} --resume {folder}` resumes from here"
    assert "Traceback" not in err
    config = json.loads((folder / "config.json").read_text())
    config["train_config"]["steps"] = steps = len(metrics.read_text().splitlines()) + 2
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = run(["fit", own, "--resume", str(folder), "--accept-changes"], capsys)
    assert code == 0, err
    assert f"at step {steps - 2} of {steps}" in err
    assert f"step {steps}/{steps}  loss" in err


@pytest.fixture
def on_terminal(monkeypatch):
    """Runs a command on a real terminal; what was seen there."""

    def seen(argv: list[str]) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("nearfar.cli.terminal.TERMINAL_REFRESH_SECONDS", 0.0)
        leader, follower = pty.openpty()
        with os.fdopen(follower, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            assert main(argv) == 0
            found = os.read(leader, 1 << 16).decode()
        os.close(leader)
        return found

    return seen


def test_what_has_no_steps_and_no_loss_is_fitted_on_a_terminal_too(on_terminal, tmp_path):
    seen = on_terminal(["fit", "bert-whitening", "--tiny", "--out", str(tmp_path / "run")])
    assert "step 0/0" in seen
    assert "loss" not in seen
    assert list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("rich", [True, False])
def test_the_bar_on_a_terminal(rich, own, on_terminal, tmp_path, monkeypatch):
    """The bar is drawn and wiped, the last line stays, the cursor is shown again."""
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    seen = on_terminal(["fit", own, "--tiny", "--out", str(tmp_path / "run")])
    assert "samples/s" in seen
    assert "left" in seen
    assert ("━" in seen) == rich
    assert "step 3/3  loss" in seen
    assert seen.rfind("\x1b[?25h") >= seen.rfind("\x1b[?25l")


@pytest.mark.slow
def test_eval_takes_another_protocol_and_keeps_only_the_usual_one(tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main(["fit", "simclr", "--tiny", "--steps", "2", "--out", folder, "-q"]) == 0
    capsys.readouterr()
    assert main(["eval", folder, "-q", "--json", "--k", "3", "--per-class", "2", "--C", "0.5"]) == 0
    protocol = json.loads(capsys.readouterr().out)["protocol"]
    assert (protocol["k"], protocol["per_class"], protocol["C"]) == (3, 2, 0.5)
    assert not (tmp_path / "run" / "results.json").exists()
    assert main(["eval", folder, "-q", "--k", "0"]) == 2
    assert "--k must be greater than 0" in capsys.readouterr().err
    table = nearfar.evaluate_model(nearfar.load(folder))
    assert table.protocol["k"] == 20


def test_a_protocol_is_refused_where_data_have_their_own(tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main(["fit", "transe", "--tiny", "--steps", "2", "--out", folder, "-q"]) == 0
    for data in ([], ["--data", "nowhere"]):
        assert main(["eval", folder, "-q", "--k", "3", *data]) == 2
        assert "have their own evaluation protocol" in capsys.readouterr().err, "said before data are looked for"
