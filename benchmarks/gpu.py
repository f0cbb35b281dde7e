"""Check training on a GPU: exact resume, bf16, replayed steps, and random numbers that equal the CPU's.

    python benchmarks/gpu.py --data IMAGES [--parts keys,resume,bf16,replay] [--methods simclr,bert] [--jobs 4]

Prints one line per check and exits with code 1 if one fails. Each result is stored in benchmarks/results/gpu_checks.json as
soon as it is known, next to the results of other checks at the same commit: the checks may be spread over several calls.
IMAGES is what `nearfar fit --data` takes, such as an .npz of some thousand images of CIFAR-10; `none` leaves out the checks that
need images. Needs a CUDA device and nothing beyond torch, transformers, numpy, scikit-learn, safetensors and Pillow; the graph
checks also need torch-geometric.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from common import stored, taking_turns, write
from provenance import CODE, UNKNOWN, agrees, portable, provenance
from safetensors.torch import load_file

from nearfar import fit, recipes
from nearfar.core import RandomKey
from nearfar.train.checkpoint import find_newest_checkpoint
from nearfar.train.training_loop import Hook

PARTS = ("keys", "resume", "bf16", "replay")
STEPS, KILL_AT = 60, 25
ON_IMAGES: dict[str, list[str | int]] = {
    "simclr, AdamW": ["simclr"],
    "moco, AdamW": ["moco"],
    "moco, SGD": ["moco", "--optimizer", "sgd", "--lr", 0.05],
    "moco, LARS": ["moco", "--optimizer", "lars", "--lr", 0.5],
}
"""Runs that are killed and resumed on the given images, with a ResNet-18."""
NO_IMAGES = "none"
ON_SMALL_DATA = {"simclr, gray images": ["simclr"], "bert": ["bert"], "dgi": ["dgi"]}
"""Runs that are killed and resumed on the small datasets of their quick-start presets."""


class Report:
    """Results of all checks, in the order in which they finish."""

    def __init__(self):
        self.checks: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, name: str, ok: bool, detail: str = "") -> None:
        """Record one check and print it."""
        with self._lock:
            self.checks.append({"name": name, "ok": ok, "detail": detail})
            store(self.checks)
            print(f"{'ok    ' if ok else 'FAILED'} {name} {detail}", flush=True)

    def run(self, name: str, check, *args) -> None:
        """Run a check that returns (ok, detail). An exception is a failed check."""
        try:
            ok, detail = check(*args)
        except Exception as e:
            ok, detail = False, f"{type(e).__name__}: {e}"[-300:]
        self.add(name, ok, detail)

    @property
    def failed(self) -> list[str]:
        return [check["name"] for check in self.checks if not check["ok"]]


SETTINGS = {"steps": STEPS, "kill_at": KILL_AT, "on images": ON_IMAGES, "on small data": ON_SMALL_DATA}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored checks have today's settings. Results of before name no settings, only the commit."""
    return "settings" not in row or agrees(row, SETTINGS)


def store(checks: Sequence[dict[str, Any]]) -> None:
    """Write the checks into the result file, together with those that other calls found at the same commit."""
    with taking_turns():
        before = stored("gpu_checks")
        known = before.get("checks", []) if before.get("commit") == CODE[0] else []
        merged = {check["name"]: portable(check) for check in [*known, *checks]}
        write("gpu_checks", {**provenance(SETTINGS, UNKNOWN), "checks": [merged[name] for name in sorted(merged)]})


def nearfar(*args: str | int | Path, kill_at: int | None = None) -> str:
    """Run the command line in its own process. Kill it when its metrics have `kill_at` lines."""
    command = [sys.executable, "-m", "nearfar", *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if kill_at is not None:
        metrics = Path(str(args[list(args).index("--out") + 1])) / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= kill_at):
            time.sleep(0.005)
        process.kill()
    output, _ = process.communicate()
    expected = 0 if kill_at is None else -9
    if process.returncode != expected:
        raise RuntimeError(f"nearfar {' '.join(map(str, args))} ended with code {process.returncode}: {output[-300:]}")
    return output


def stored_tensors(run: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of a run's newest checkpoint: weights and optimizer state."""
    found = find_newest_checkpoint(run / "checkpoints")
    assert found is not None, f"{run} has no checkpoint"
    files = sorted(found.folder.glob("*.safetensors"))
    return {f"{file.name}:{name}": tensor for file in files for name, tensor in load_file(file).items()}


def check_resume(settings: Sequence[str | int | float], folder: Path) -> tuple[bool, str]:
    """Train once without a pause and once with a kill in between, and compare all stored tensors bit for bit."""
    often = ["--steps", STEPS, "--deterministic", "--save-every", 7, "--log-every", 1, "--device", "cuda"]
    nearfar("fit", *settings, *often, "--out", folder / "whole")
    nearfar("fit", *settings, *often, "--out", folder / "killed", kill_at=KILL_AT)
    nearfar("fit", "--resume", folder / "killed")
    whole, resumed = stored_tensors(folder / "whole"), stored_tensors(folder / "killed")
    different = [name for name in whole if name not in resumed or not torch.equal(whole[name], resumed[name])]
    ok = whole.keys() == resumed.keys() and not different
    return ok, f"{len(whole)} tensors" if ok else f"different: {different[:3]}"


def check_bf16(name: str, data: str, folder: Path) -> tuple[bool, str]:
    """Train one epoch with a ResNet-18 in bf16 in its own process."""
    start = time.perf_counter()
    flags = ["--data", data, "--epochs", 1, "--encoder", "resnet18", "--precision", "bf16"]
    nearfar("fit", name, *flags, "--out", folder)
    return True, f"{time.perf_counter() - start:.0f} s with the start of the process"


def check_keys(draw: str) -> tuple[bool, str]:
    """Compare keyed random numbers drawn on the GPU with those drawn on the CPU."""
    slots = torch.arange(10_000)
    on_cpu = getattr(RandomKey(1), draw)(slots, 7)
    on_gpu = getattr(RandomKey(1), draw)(slots.cuda(), 7).cpu()
    return torch.equal(on_cpu, on_gpu), "10,000 x 7 numbers, bit for bit"


class Losses(Hook):
    """Keep the loss of every step, and whether the step was replayed from a CUDA graph."""

    def __init__(self):
        self.values: list[torch.Tensor] = []
        self.replayed = False

    def step(self, session, values, z):
        self.values.append(values["loss"].clone())
        self.replayed = all(step.recorder is not None and step.recorder.cuda_graph is not None for step in session.grad_steps)


def check_replay(name: str, data: str) -> tuple[bool, str]:
    """Compare the losses of 20 steps with and without CUDA graphs."""
    settings: dict[str, Any] = {"preset": "tiny"}
    if name in image_methods():
        settings = {"data": data, "encoder": "resnet18", "precision": "bf16", "optimizer": "sgd", "lr": 1e-3}
    found = []
    for graph in (True, False):
        losses = Losses()
        fit(name, steps=20, device="cuda", cuda_graph=graph, hooks=[losses], **settings)
        found.append(losses)
    with_graph, without = (torch.stack(losses.values) for losses in found)
    error = float((with_graph - without).abs().max() / without.abs().max())
    return error < 1e-3, f"relative difference {error:.0e}{'' if found[0].replayed else ', not recorded'}"


def check_after_failed_recording(refused: str, with_dropout: str) -> tuple[bool, str]:
    """Train a method with dropout in the process in which another method's step could not be recorded."""
    check_replay(refused, NO_IMAGES)
    return check_replay(with_dropout, NO_IMAGES)


def image_methods() -> list[str]:
    """Return the names of the methods for images."""
    return [name for name in recipes.list_methods() if recipes.load_method(name).recipe_class.card.modality == "image"]


def trained_methods() -> list[str]:
    """Return the names of the methods that are trained by steps."""
    return [name for name in recipes.list_methods() if recipes.load_method(name).tiny[0].trains]


def run_checks(report: Report, args: argparse.Namespace, folder: Path) -> None:
    """Run all checks in processes of their own, `--jobs` at a time."""
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as processes, ThreadPoolExecutor(args.jobs) as pool:
        chosen = args.methods or recipes.list_methods()
        if args.data == NO_IMAGES:
            chosen = [name for name in chosen if name not in image_methods()]
        if "keys" in args.parts:
            for draw in ("uniform", "normal"):
                report.run(f"keyed {draw} numbers equal the CPU's", check_keys, draw)
        if "resume" in args.parts:
            for number, (name, settings) in enumerate(resumed_runs(args.data).items()):
                title = f"a killed run resumes bit-identically: {name}"
                pool.submit(report.run, title, check_resume, settings, folder / f"resume-{number}")
        if "bf16" in args.parts:
            for name in [name for name in image_methods() if name in chosen]:
                pool.submit(report.run, f"one epoch in bf16: {name}", check_bf16, name, args.data, folder / f"bf16-{name}")
        if "replay" in args.parts:
            title = "dropout works after a recording that failed"
            names = ("cpc-audio", "dpr")
            pool.submit(report.run, title, lambda: processes.submit(check_after_failed_recording, *names).result())
            for name in [name for name in trained_methods() if name in chosen]:
                title = f"replayed steps equal ordinary steps: {name}"
                pool.submit(report.run, title, lambda name: processes.submit(check_replay, name, args.data).result(), name)


def resumed_runs(data: str) -> dict[str, list[str | int | float]]:
    """Return the settings of the runs that are killed and resumed. Without images, those on small data only."""
    small = {name: [*settings, "--tiny"] for name, settings in ON_SMALL_DATA.items()}
    if data == NO_IMAGES:
        return small
    images = ["--data", data, "--batch-size", 128, "--encoder", "resnet18"]
    return {name: [*settings, *images] for name, settings in ON_IMAGES.items()} | small


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="images to train on")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--methods", type=lambda text: text.split(","), help="bf16 and replayed steps of these methods only")
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time")
    return parser


def main() -> int:
    args = parser().parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # many processes share the cores
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        run_checks(report, args, Path(folder))
    print(f"{len(report.checks)} checks, {len(report.failed)} failed {report.failed or ''}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
