"""Sound recipes on spoken digits with speakers held out and on environmental sounds with folds held out.

    python benchmarks/sound.py [--experiments nandan-vepa/fsdd,cpc-audio/fsdd] [--seeds 0,1,2]

Rows accumulate in benchmarks/results/sound.json: those that are there are not run again unless --again is given.
Data: FSDD (3,000 recordings of digits, 6 speakers) and ESC-10 (400 sounds, 5 folds), in $NEARFAR_DATA or ~/.cache/nearfar.
Protocol: seed s holds out the s-th speaker or fold; the encoder sees the other ones only, without labels; last step; linear probe on 5
labels a class (10 draws) and on all labels of the training speakers or folds, kNN (k = 20, tau = 0.07). Floors in the same run: the
untrained encoder and log-mel statistics (mean and deviation of each band). A row of the summary is short where training does not
gain more than twice the paired standard error over both floors. Settings are looked at on a validation speaker or fold inside the
training data only (--validate: the held-out group is put aside and another one of the rest is measured on).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import mean, stdev

import torch
from common import RESULTS, write

from nearfar.app.api import fit
from nearfar.app.results import measure
from nearfar.core import Run
from nearfar.data import inputs_for
from nearfar.data.sound import held_out
from nearfar.recipes import method

DATA = Path(os.environ.get("NEARFAR_DATA", Path.home() / ".cache" / "nearfar"))
SETTINGS = {
    "nandan-vepa/fsdd": {"encoder": "mel", "epochs": 12, "batch": 128, "lr": 2e-3},
    "cpc-audio/fsdd": {"encoder": "mel", "epochs": 10, "batch": 64, "lr": 2e-3},
    "wav2vec2/fsdd": {"encoder": "mel", "epochs": 10, "batch": 64, "lr": 2e-3},
    "nandan-vepa/esc10": {"encoder": "mel", "epochs": 40, "batch": 64, "lr": 2e-3, "shortest": 0.2, "longest": 0.4},
}
FLOORS = ("untrained encoder", "log-mel statistics")
METRICS = ("few_labels", "linear", "knn")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of a validation group and write nothing")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.experiments.split(","):
        for seed in map(int, args.seeds.split(",")):
            if args.validate:
                show(row(name, seed, validate=True))
                continue
            rows = known()
            if not args.again and any((r["experiment"], r["seed"]) == (name, seed) for r in rows):
                continue
            rows = [r for r in rows if (r["experiment"], r["seed"]) != (name, seed)] + [row(name, seed)]
            show(rows[-1])
            rows.sort(key=lambda r: (r["experiment"], r["seed"]))
            write("sound", {"settings": SETTINGS, "summary": summary(rows), "rows": rows})


def known() -> list[dict]:
    path = RESULTS / "sound.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def row(name: str, seed: int, validate: bool = False) -> dict:
    recipe, data = name.split("/")
    settings = {"rate": 8000, "seed": seed, **SETTINGS[name]}
    source = DATA / data
    if validate:
        source = inputs_for(method(recipe).recipe()).open(source, Run(data=str(source), rate=8000, seed=seed)).train
    began = time.perf_counter()
    trained = fit(recipe, source, **settings)
    seconds = time.perf_counter() - began
    found = measure(trained, source if validate else None)
    table, group = found.table, held_out(found.splits.test)
    return {
        "experiment": name, "seed": seed, "held_out": group, "seconds": round(seconds, 1),
        "protocol": table.protocol, "results": table.results,
    }  # fmt: skip


def show(found: dict) -> None:
    print(f"{found['experiment']} seed {found['seed']}, {found['held_out']} held out, {found['seconds']} s")
    for r in found["results"]:
        print(f"  {r['representation']:20}" + "".join(f"  {m} {100 * r[m]:5.1f}" for m in METRICS), flush=True)


def summary(rows: list[dict]) -> list[dict]:
    """For each experiment, metric and floor: what training gained, over seeds, with the standard error of the paired differences."""
    found = []
    for name in sorted({r["experiment"] for r in rows}):
        tables = [{x["representation"]: x for x in r["results"]} for r in rows if r["experiment"] == name]
        for metric in METRICS:
            entry = {"experiment": name, "metric": metric, "seeds": len(tables)}
            for who in ("trained encoder", *FLOORS):
                entry[who] = mean(t[who][metric] for t in tables)
            short = len(tables) < 3
            for floor in FLOORS:
                gains = [t["trained encoder"][metric] - t[floor][metric] for t in tables]
                error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
                entry |= {f"gain over {floor}": mean(gains), f"standard error, {floor}": error}
                short |= error is None or mean(gains) <= 2 * error
            found.append(entry | {"short": short})
    return found


if __name__ == "__main__":
    main()
