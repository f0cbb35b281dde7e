"""Sound recipes on spoken digits with speakers held out and on environmental sounds with folds held out.

    python benchmarks/sound.py --validate [--at-once 8]      every setting of the grid, on validation groups
    python benchmarks/sound.py [--at-once 8]                 measure on the held-out groups

Both take --experiments nandan-vepa/fsdd,cpc-audio/esc10, --seeds 0,1,2 and --device. Rows accumulate in benchmarks/results, in
sound_validation.json and in sound.json: those that are there with settings of the grid are not run again unless --again is given.
Data: FSDD (3,000 recordings of digits, 6 speakers) and ESC-10 (400 sounds, 5 folds), in $NEARFAR_DATA or ~/.cache/nearfar.
Protocol: seed s holds out the s-th speaker or fold; the encoder sees the other ones only, without labels; last step; linear probe on 5
labels a class (10 draws) and on all labels of the training speakers or folds, kNN (k = 20, tau = 0.07). Floors in the same run: the
untrained encoder and log-mel statistics (mean and deviation of each band). A row of the summary is short where training does not
gain more than twice the paired standard error over both floors.
Settings are selected on validation groups: with --validate the held-out group is left out and another one of the rest is measured on. For
each held-out group the setting is used that is highest above log-mel statistics (mean of both probes) over the validations on other
groups. Without stored validations that is the first setting of the grid. For ESC-10 no two settings have been compared: its rows use the
first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import Any

import torch
from common import add, changes, gains_over, known
from provenance import DATA, Training, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import TrainConfig
from nearfar.data import Splits
from nearfar.data.audio.dataset import format_groups
from nearfar.modalities import find_modality
from nearfar.recipes import load_method

RATE = 8000
MEL = {"encoder": "mel", "lr": 1e-3}
GRID: dict[str, dict[str, dict[str, Any]]] = {
    "nandan-vepa/fsdd": {"first": {"encoder": "mel", "epochs": 12, "batch_size": 128, "lr": 2e-3}},
    "cpc-audio/fsdd": {
        "short": {**MEL, "epochs": 15, "batch_size": 64},
        "long": {**MEL, "epochs": 50, "batch_size": 64},
        "others": {**MEL, "epochs": 50, "batch_size": 64, "same_clip_negatives": False},
    },
    "wav2vec2/fsdd": {
        "fast": {**MEL, "epochs": 50, "batch_size": 64, "lr": 2e-3},
        "long": {**MEL, "epochs": 50, "batch_size": 64},
        "others": {**MEL, "epochs": 50, "batch_size": 64, "same_clip_negatives": False},
    },
    "nandan-vepa/esc10": {
        "first": {**MEL, "epochs": 40, "batch_size": 64, "lr": 2e-3, "min_window_share": 0.2, "max_window_share": 0.4},
        "long": {**MEL, "epochs": 200, "batch_size": 64, "lr": 2e-3, "min_window_share": 0.2, "max_window_share": 0.4},
        "wide": {**MEL, "epochs": 200, "batch_size": 64, "lr": 2e-3, "min_window_share": 0.4, "max_window_share": 0.8},
    },
    "cpc-audio/esc10": {
        "second": {**MEL, "epochs": 100, "batch_size": 32, "window_share": 0.2, "same_clip_negatives": False},
        "half": {**MEL, "epochs": 200, "batch_size": 64, "window_share": 0.1, "same_clip_negatives": False},
        "far": {
            **MEL,
            "epochs": 100,
            "batch_size": 32,
            "window_share": 0.3,
            "same_clip_negatives": False,
            "min_steps_ahead": 20,
            "steps_ahead": 23,
        },
    },
    "wav2vec2/esc10": {
        "second": {**MEL, "epochs": 100, "batch_size": 32, "window_share": 0.2, "same_clip_negatives": False},
        "half": {**MEL, "epochs": 200, "batch_size": 64, "window_share": 0.1, "same_clip_negatives": False},
        "diverse": {
            **MEL,
            "epochs": 100,
            "batch_size": 32,
            "window_share": 0.2,
            "same_clip_negatives": False,
            "diversity_weight": 1.0,
            "codebook_size": 64,
        },
    },
}
"""For each experiment the settings that are compared, by a name; where there is but one, it is taken."""
SEEDS = {"fsdd": (0, 1, 2, 3, 4, 5), "esc10": (0, 1, 2, 3, 4)}
"""As many as there are groups to hold out."""
FLOORS = ("untrained encoder", "log-mel statistics")
METRICS = ("few_labels", "linear", "knn")
Task = tuple[str, int, str]
"""Experiment, seed, and of a validation the name of its setting."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", default=",".join(GRID))
    parser.add_argument("--seeds", help="default: one for each speaker or fold, of validations the first three")
    parser.add_argument("--settings", help="with --validate: names in the grid; default: all where there are several")
    parser.add_argument("--validate", action="store_true", help="measure the grid on validation groups")
    parser.add_argument("--set", help="with --validate: other settings, as in epochs=1,lr=1e-3, to be tried and not written down")
    parser.add_argument("--at-once", type=int, help="processes, each with a thread, that share the device")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    tasks = wanted(args)
    if args.at_once:
        with ThreadPoolExecutor(args.at_once) as pool:
            failed = sum(pool.map(lambda task: alone(task, args), tasks))
        sys.exit(f"{failed} of {len(tasks)} failed" if failed else 0)
    for task in tasks:
        validation(*task, args.device, args.set) if args.validate else result(*task[:2], args.device)


def wanted(args: argparse.Namespace) -> list[Task]:
    """What is asked for and not there yet."""
    found = []
    for name in args.experiments.split(","):
        data = name.split("/")[1]
        seeds = tuple(map(int, args.seeds.split(","))) if args.seeds else SEEDS[data][:3] if args.validate else SEEDS[data]
        names = args.settings.split(",") if args.settings else tuple(GRID[name]) if len(GRID[name]) > 1 else ()
        found += [(name, seed, setting) for setting in (names if args.validate else ("",)) for seed in seeds]
    if args.again or args.set:
        return found
    rows = [r for r in known("sound_validation" if args.validate else "sound") if is_current(r)]
    there = {(r["experiment"], r["seed"], r["setting"] if args.validate else "") for r in rows}
    return [task for task in found if task not in there]


def training(name: str, settings: dict[str, Any]) -> Training:
    """Return all settings of a run."""
    return training_of(name.split("/")[0], {"sample_rate": RATE, **settings})


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has settings that are in today's grid."""
    tried = GRID[row["experiment"]]
    named = [tried[row["setting"]]] if row.get("setting") in tried else [] if "setting" in row else list(tried.values())
    return any(agrees(row, settings, training(row["experiment"], settings)) for settings in named)


def alone(task: Task, args: argparse.Namespace) -> bool:
    """One task in a process of its own; whether it failed."""
    name, seed, setting = task
    command = [sys.executable, __file__, "--experiments", name, "--seeds", str(seed), "--device", args.device, "--threads", "1", "--again"]
    command += ["--validate", "--settings", setting] if args.validate else []
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode != 0


def validation(name: str, seed: int, setting: str, device: str, other: str | None) -> None:
    changed = changes(other)
    row = trained_and_measured(name, seed, GRID[name][setting] | changed, opened(name, seed).train, device)
    if not changed:
        add(
            "sound_validation", {"setting": setting, **row}, by=("experiment", "setting", "seed"), about=lambda rows: {"means": means(rows)}
        )
    show(row, setting)


def result(name: str, seed: int, device: str) -> None:
    setting = chosen(name, format_groups(opened(name, seed).test), known("sound_validation"))
    row = trained_and_measured(name, seed, GRID[name][setting], DATA / name.split("/")[1], device)
    add("sound", row, by=("experiment", "seed"), about=lambda rows: {"grid": GRID, "summary": summary(rows)})
    show(row, setting)


def opened(name: str, seed: int) -> Splits:
    recipe, data = name.split("/")
    return (
        find_modality(load_method(recipe).recipe_class.card.modality)
        .build_inputs()
        .load_splits(DATA / data, TrainConfig(data=str(DATA / data), sample_rate=RATE, seed=seed))
    )


def trained_and_measured(name: str, seed: int, settings: dict, source: object, device: str) -> dict:
    began = time.perf_counter()
    # no CUDA graph: how many moments are heard differs from step to step
    model = fit(name.split("/")[0], source, sample_rate=RATE, seed=seed, device=device, cuda_graph=False, **settings)
    seconds = time.perf_counter() - began
    found = measure_model(model, source)
    return {
        "experiment": name, "seed": seed, "held_out": format_groups(found.splits.test), "seconds": round(seconds, 1),
        "learned": {k: round(v, 4) for m in model.metrics for k, v in m.items() if isinstance(v, float) and k not in ("time", "lr")},
        "protocol": found.table.protocol, "results": found.table.results,
        **provenance(settings, model.data_fingerprint, training(name, settings)),
    }  # fmt: skip


def gained(row: dict) -> float:
    """What a setting is chosen by: how far the trained encoder lies above log-mel statistics, as the mean of both probes."""
    of = {r["representation"]: (r["few_labels"] + r["linear"]) / 2 for r in row["results"]}
    return of["trained encoder"] - of["log-mel statistics"]


def chosen(name: str, group: str, validations: list[dict]) -> str:
    """The name of the setting that is best over the validations on other groups than this one."""
    rows = [r for r in validations if r["experiment"] == name and r["held_out"] != group]
    gains = {setting: [gained(r) for r in rows if r["setting"] == setting] or [-1.0] for setting in GRID[name]}
    return max(gains, key=lambda setting: mean(gains[setting]))


def means(rows: list[dict]) -> dict[str, dict[str, float]]:
    """For each experiment what its settings gained, the best one first."""
    found: dict[str, dict[str, list[float]]] = {}
    for r in rows:
        found.setdefault(r["experiment"], {}).setdefault(r["setting"], []).append(gained(r))
    return {name: dict(sorted(((s, mean(g)) for s, g in of.items()), key=lambda pair: -pair[1])) for name, of in found.items()}


def show(found: dict, setting: str) -> None:
    lines = [f"{found['experiment']} {setting} seed {found['seed']}, {found['held_out']} held out, {found['seconds']} s {found['learned']}"]
    lines += [f"  {r['representation']:20}" + "".join(f"  {m} {100 * r[m]:5.1f}" for m in METRICS) for r in found["results"]]
    print("\n".join(lines), flush=True)


def summary(rows: list[dict]) -> list[dict]:
    """For each experiment, metric and floor: what training gained, over seeds, with the standard error of the paired differences."""
    found = []
    for name in sorted({r["experiment"] for r in rows}):
        tables = [{x["representation"]: x for x in r["results"]} for r in rows if r["experiment"] == name]
        found += [{"experiment": name, "metric": metric, **gains_over(tables, metric, "trained encoder", FLOORS)} for metric in METRICS]
    return found


if __name__ == "__main__":
    main()
