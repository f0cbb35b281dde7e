"""Record what every recipe and every modality computes, to prove that a restructuring changes no number.

    python tools/record.py --out record.json.xz [--only simclr,dgi] [--jobs 2]
    python tools/compare_records.py before.json.xz after.json.xz [--renames tools/record_renames_0_2.json] [--tolerance 1e-5]

For every recipe: the losses of five steps of its quick-start preset, a SHA-256 of all tensors of the final checkpoint, a SHA-256 and
a sample of the vectors of its data, and the data fingerprint. For every modality: the results of `eval` and ten search results. For three
recipes: the same training on two ranks. The script uses the command line only, so that it runs before and after renames. Run it from
the root of the checkout that it records. Hashes agree on one machine only; `compare_records.py --tolerance` compares numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path.cwd()))

STEPS = 5
MODALITIES = {
    "image": "simclr",
    "image-text": "clip",
    "text": "simcse-unsup",
    "questions": "dpr",
    "audio": "cpc-audio",
    "frames": "st-dim",
    "nodes": "dgi",
    "graphs": "infograph",
    "triples": "transe",
    "words": "word2vec-skipgram-neg",
    "walks": "node2vec",
}
"""The recipe whose run is evaluated and searched, for each modality."""
ON_TWO_RANKS = ("simclr", "moco", "bert")
QUERIES = 10
SAMPLE = 32
TIMES = {"time", "seconds", "images_a_second", "rate"}
"""Fields that differ from run to run."""


def nearfar(*args: str | int | Path) -> str:
    """Run a command in this process and return what it prints."""
    from nearfar.__main__ import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main([str(arg) for arg in args])
    if code:
        raise RuntimeError(f"nearfar {' '.join(map(str, args))} ended with code {code}: {errors.getvalue()[-500:]}")
    return output.getvalue()


def all_recipes() -> list[str]:
    """Return the names of the recipe files."""
    folders = Path("nearfar/recipes").glob("*/*.py")
    return sorted(path.stem.replace("_", "-") for path in folders if path.stem != "__init__")


def train(name: str, run: Path) -> None:
    """Train five steps of a recipe's quick-start preset; a recipe in closed form has no steps."""
    options = ["--tiny", "--log-every", 1, "--out", run, "--quiet"]
    try:
        nearfar("fit", name, "--steps", STEPS, *options)
    except RuntimeError as e:
        if "closed form" not in str(e):
            raise
        nearfar("fit", name, *options)


def hash_of_checkpoint(run: Path) -> str:
    """Hash names, dtypes, shapes and values of all tensors in the newest checkpoint: the net, then the optimizers."""
    from safetensors.torch import load_file

    digest = hashlib.sha256()
    newest = max((run / "checkpoints").glob("step-*"))
    for file in sorted(newest.glob("*.safetensors")):
        digest.update(file.name.encode())
        for name, tensor in load_file(file).items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def losses(run: Path) -> list[float]:
    """Return the loss of every step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def field(config: dict[str, Any], name: str) -> Any:
    """Return a field of a run's config, wherever it stands."""
    found = [part[name] for part in config.values() if isinstance(part, dict) and name in part]
    return found[0]


def vectors(run: Path, data: str, file: Path) -> dict[str, Any]:
    """Return a hash and a sample of the vectors of all samples."""
    import numpy as np

    nearfar("embed", run, "--data", data, "--out", file, "--quiet")
    found = np.load(file)
    sample = found.reshape(-1)[:: max(1, found.size // SAMPLE)][:SAMPLE]
    return {"shape": list(found.shape), "sha256": hashlib.sha256(found.tobytes()).hexdigest(), "sample": [float(x) for x in sample]}


def attempt(fn, *args) -> Any:
    """Return what a function returns, or its error as text: a command that a recipe does not support is part of the record."""
    try:
        return fn(*args)
    except RuntimeError as e:
        return f"error: {e}"


def record_recipe(name: str) -> dict[str, Any]:
    """Record one recipe in a temporary folder, and its modality if it stands for one."""
    import torch

    torch.set_num_threads(1)
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run = Path(name)
        train(name, run)
        config = json.loads((run / "config.json").read_text())
        data = field(config, "data")
        found: dict[str, Any] = {
            "losses": losses(run),
            "state": hash_of_checkpoint(run),
            "fingerprint": field(config, "fingerprint"),
            "vectors": attempt(vectors, run, data, Path("vectors.npy")),
        }
        if name in MODALITIES.values():
            found["eval"] = attempt(evaluation, run)
            found["search"] = attempt(searches, run, data)
        if name in ON_TWO_RANKS:
            found["two ranks"] = train_on_two_ranks(name, home)
    print(f"{name}: {len(found['losses'])} losses, {found['state'][:12]}", flush=True)
    return found


def evaluation(run: Path) -> Any:
    """Return the result table that `nearfar eval` stores in the run, without times."""
    nearfar("eval", run, "--quiet")
    stored = json.loads((run / "results.json").read_text())
    return without_times({name: stored[name] for name in ("protocol", "results")})


def without_times(value: Any) -> Any:
    """Drop the fields that differ from run to run."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(part) for part in value]
    return value


def searches(run: Path, data: str) -> list[Any]:
    """Return the hits of ten rows of an exact index."""
    index = ["index", run, "--data", data, "--out", "index", "--quiet"]
    try:
        nearfar(*index, "--index-type", "exact")
    except RuntimeError:  # before version 0.2
        nearfar(*index, "--kind", "exact")
    lines = [nearfar("search", "index", f"row:{row}", "--k", 5, "--json", "--quiet") for row in range(QUERIES)]
    return [json.loads(line)["hits"] for line in lines]


def train_on_two_ranks(name: str, home: Path) -> dict[str, Any]:
    """Train the same steps on two gloo ranks."""
    run = Path("two-ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nearfar", "fit", name]
    options = ["--tiny", "--steps", str(STEPS), "--log-every", "1", "--out", str(run), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(home)}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} on two ranks: {done.stderr[-500:]}")
    return {"losses": losses(run), "state": hash_of_checkpoint(run)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, as .json.xz")
    parser.add_argument("--only", help="these recipes, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else all_recipes()
    with ProcessPoolExecutor(args.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        found = dict(zip(names, pool.map(record_recipe, names), strict=True))
    text = json.dumps({"modalities": MODALITIES, "recipes": found}, indent=1)
    args.out.write_bytes(lzma.compress(text.encode()))
    print(f"{len(found)} recipes, {args.out.stat().st_size} bytes in {args.out}")


if __name__ == "__main__":
    main()
