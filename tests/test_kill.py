"""Real processes, really killed: whatever happens, `fit --resume` ends where an undisturbed run ends, bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import assert_same_tensors, stored

from nearfar.cli.main import main
from nearfar.train.run_folder import RunFolder

pytestmark = pytest.mark.slow
STEPS = 60


def start(*args: str | Path) -> subprocess.Popen:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "nearfar", "fit", *map(str, args)], env=env, stderr=subprocess.PIPE, text=True)


def finish(*args: str | Path) -> None:
    """In this process: nobody disturbs it."""
    assert main(["fit", *map(str, args)]) == 0


def steps_done(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else -1


def kill_when(process: subprocess.Popen, condition) -> None:
    """SIGKILL to the whole process as soon as the condition holds."""
    limit = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, f"ended by itself: {process.communicate()[1]}"
        assert time.monotonic() < limit
        time.sleep(0.001)  # a save takes longer; and the process needs the core
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def saving(run: Path) -> bool:
    return any(run.glob("checkpoints/.step-*"))


def without_time(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "time"} for line in lines]


@pytest.mark.parametrize(("name", "workers"), [("simclr", 0), ("moco", 2)])
def test_killed_again_and_again(name, workers, tmp_path, capsys):
    settings = ["--tiny", "--steps", STEPS, "--batch-size", 64, "--save-every", 3, "--log-every", 1, "--eval-every", 20]
    finish(name, *settings, "--out", tmp_path / "whole")
    run, rng = tmp_path / "run", random.Random(name)

    process = start(name, *settings, "--num-workers", workers, "--out", run)  # before its first checkpoint
    kill_when(process, lambda: steps_done(run) >= 1)
    process = start("--resume", run)  # in the middle of a save
    kill_when(process, lambda: steps_done(run) >= 4 and saving(run))
    process = start("--resume", run)  # at a random step
    at = rng.randrange(12, STEPS - 12)
    kill_when(process, lambda: steps_done(run) >= at)
    finish("--resume", run)

    assert_same_tensors(stored(tmp_path / "whole"), stored(run))
    assert without_time(tmp_path / "whole") == without_time(run)
    assert not any(run.glob("checkpoints/.*")), "what a killed writer left is cleaned up"
    capsys.readouterr()
    finish("--resume", run)
    assert "is finished" in capsys.readouterr().err


def test_interrupt_saves_and_names_the_way_back(tmp_path):
    run = tmp_path / "run"
    settings = ["--tiny", "--steps", 5000, "--batch-size", 64, "--save-every", 4000, "--log-every", 1]
    process = start("simclr", *settings, "--out", run)
    while steps_done(run) < 3:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert f"nearfar fit --resume {run}" in err
    assert "Traceback" not in err
    assert len(list(run.glob("checkpoints/step-*"))) == 1


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run = tmp_path / "run"
    first = start("simclr", "--tiny", "--steps", 100000, "--batch-size", 64, "--log-every", 1, "--out", run)
    while steps_done(run) < 1:
        assert first.poll() is None, first.communicate()[1]
        time.sleep(0.01)
    second = start("--resume", run)
    _, err = second.communicate(timeout=240)
    first.kill()
    first.communicate()
    assert second.returncode == 1
    assert "another process is training" in err


def test_resume_locks_the_run_before_it_chooses_a_checkpoint(tmp_path, monkeypatch):
    run = tmp_path / "run"
    process = start("simclr", "--tiny", "--steps", 30, "--batch-size", 64, "--save-every", 5, "--log-every", 1, "--out", run)
    kill_when(process, lambda: steps_done(run) >= 12)
    lock = RunFolder.lock

    def lock_after_another_process_finished(folder):
        monkeypatch.setattr(RunFolder, "lock", lock)
        other = start("--resume", run)
        _, err = other.communicate(timeout=240)
        assert other.returncode == 0, err
        return lock(folder)

    monkeypatch.setattr(RunFolder, "lock", lock_after_another_process_finished)
    finish("--resume", run)
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["step-000000025", "step-000000030"], "a finished run was set aside"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 31))


def test_fit_locks_the_folder_before_it_writes_the_config(tmp_path, monkeypatch):
    run = tmp_path / "run"
    held: list[bool] = []
    write_config = RunFolder.write_config

    def write_and_try_to_resume(folder, config):
        write_config(folder, config)
        second = start("--resume", run)
        _, err = second.communicate(timeout=240)
        held.append(second.returncode == 1 and "another process is training" in err)

    monkeypatch.setattr(RunFolder, "write_config", write_and_try_to_resume)
    finish("simclr", "--tiny", "--steps", 2, "--batch-size", 64, "--out", run)
    assert held == [True]


def test_overwriting_a_run_that_is_being_trained_is_refused(tmp_path, capsys):
    run = tmp_path / "run"
    finish("simclr", "--tiny", "--steps", 2, "--batch-size", 64, "--out", run)
    with RunFolder(run).lock():
        assert main(["fit", "simclr", "--tiny", "--steps", "2", "--batch-size", "64", "--out", str(run), "--overwrite"]) == 1
    assert "another process is training" in capsys.readouterr().err
    assert (run / "config.json").exists()
