"""Does everything hold on a GPU? Training, bf16, exact resume, recorded steps, agreement with the CPU.

    python benchmarks/gpu.py --data IMAGES [--methods simclr,bert]

Prints one line a check; exit code 1 if one fails. Needs a CUDA device and nothing beyond torch, numpy, scikit-learn, safetensors, Pillow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from nearfar import fit, recipes
from nearfar.core import Key
from nearfar.train.checkpoint import newest
from nearfar.train.fit import Hook

FAILED = []


def check(name: str, good: bool, detail: str = "") -> None:
    FAILED.extend([] if good else [name])
    print(f"{'ok    ' if good else 'FAILED'} {name} {detail}", flush=True)


def nearfar(*args: str | int | Path, kill_at: int | None = None) -> str:
    """The command line in a process of its own; optionally killed when its metrics have that many lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nearfar", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if kill_at is not None:
        metrics = Path(str(args[list(args).index("--out") + 1])) / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= kill_at):
            time.sleep(0.02)
        process.kill()
    out, _ = process.communicate()
    if process.returncode not in (0, -9):
        raise SystemExit(f"nearfar {' '.join(map(str, args))} failed:\n{out}")
    return out


def tensors(run: Path) -> dict[str, torch.Tensor]:
    found = newest(run / "checkpoints")
    assert found is not None
    return {f"{f.name}:{k}": v for f in sorted(found.folder.glob("*.safetensors")) for k, v in load_file(f).items()}


def same(a: Path, b: Path) -> bool:
    x, y = tensors(a), tensors(b)
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def exact_resume(data: str, folder: Path, name: str) -> None:
    often = ["--save-every", 7, "--log-every", 1]
    settings = [name, "--data", data, "--steps", 60, "--batch", 128, "--encoder", "resnet18", "--deterministic", *often]
    nearfar("fit", *settings, "--out", folder / f"{name}-whole")
    nearfar("fit", *settings, "--out", folder / f"{name}-killed", kill_at=25)
    nearfar("fit", "--resume", folder / f"{name}-killed")
    check(f"{name}: killed and resumed is bit-identical on CUDA", same(folder / f"{name}-whole", folder / f"{name}-killed"))


def keys_agree() -> None:
    slots = torch.arange(10_000)
    for draw in ("uniform", "normal"):
        a, b = getattr(Key(1), draw)(slots, 7), getattr(Key(1), draw)(slots.cuda(), 7).cpu()
        check(f"keyed {draw} numbers are the CPU's, bit for bit", torch.equal(a, b))


def vision() -> list[str]:
    """The methods for images."""
    return [name for name in recipes.names() if recipes.method(name).recipe.card.modality == "image"]


def trains(data: str, folder: Path) -> None:
    for name in vision():
        began = time.perf_counter()
        flags = ["--data", data, "--epochs", 3, "--batch", 256, "--encoder", "resnet18", "--precision", "bf16"]
        nearfar("fit", name, *flags, "--out", folder / name)
        check(f"{name}: 3 epochs, ResNet-18, bf16", True, f"{time.perf_counter() - began:.1f} s with the start of the process")
    print(nearfar("eval", folder / "simclr"))


class Losses(Hook):
    def __init__(self):
        self.values: list[torch.Tensor] = []

    def step(self, session, values, z):
        self.values.append(values["loss"].clone())
        self.recorded = all(step.recorder is not None and step.recorder.graph is not None for step in session.grad_steps)


def replays(data: str, names: list[str]) -> None:
    """A recorded step is the ordinary one: the same losses, step by step, for every method; what is not recorded is said."""
    images = {"data": data, "batch": 256, "encoder": "resnet18", "precision": "bf16", "optimizer": "sgd", "lr": 0.05}
    for name in (name for name in names if recipes.method(name).tiny[0].trains):
        settings = images if name in vision() else {"preset": "tiny"}
        found = []
        for graph in (True, False):
            losses = Losses()
            fit(name, steps=20, device="cuda", graph=graph, hooks=[losses], **settings)
            found.append(losses)
        a, b = (torch.stack(x.values) for x in found)
        off = float((a - b).abs().max() / b.abs().max())
        check(f"{name}: a replayed step is the ordinary one", off < 1e-3, f"{off:.0e}{'' if found[0].recorded else ' (not recorded)'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--methods", help="recorded steps of these methods alone, and nothing else")
    args = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with tempfile.TemporaryDirectory() as folder:
        keys_agree()
        replays(args.data, args.methods.split(",") if args.methods else recipes.names())
        if not args.methods:
            trains(args.data, Path(folder))
            exact_resume(args.data, Path(folder), "simclr")
            exact_resume(args.data, Path(folder), "moco")
    print(f"{len(FAILED)} checks failed {FAILED or ''}")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
