"""InfoGraph on sets of small graphs: frozen embeddings, support vector machine, the files' 10 folds, beside simple counts.

    python benchmarks/infograph.py [--sets MUTAG,PROTEINS,IMDBBINARY] [--seeds 5]

--data: folder with a folder for each set; default $NEARFAR_DATA/tu, or ~/.cache/nearfar/tu. Rows accumulate in
benchmarks/results/infograph.json: (set, seed) pairs that are there with today's settings are not run again unless --again is given.
Protocol of the paper: the encoder sees all graphs without labels; a support vector machine learns from 9 folds and is counted on the
tenth, its C chosen by 5-fold cross-validation within the 9; the mean over folds. Last step, where the authors' code reports the best
epoch. Settings are those of the authors' code (`paper` of nearfar/recipes/graph/infograph.py), the same for every set. Features are
standardised over the training folds, for every row alike.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import check_row, stored, write
from provenance import DATA, agrees, provenance, training_of
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from nearfar import recipes
from nearfar.core import RuntimeConfig
from nearfar.data.graphs.dataset import Graphs
from nearfar.data.graphs.load import load_all_graphs
from nearfar.data.graphs.readers import read_gin_folds
from nearfar.modalities.graphs import GraphModality
from nearfar.train.encode import encode_all
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train

PENALTIES = [10.0**k for k in range(-3, 4)]
SETTINGS: dict[str, Any] = {"preset": "paper"}
Folds = list[tuple[np.ndarray, np.ndarray]]


def accuracy(x: np.ndarray, y: np.ndarray, folds: Folds) -> float:
    """The mean over folds."""
    found = []
    for train_ids, test_ids in folds:
        machine = make_pipeline(StandardScaler(), SVC(cache_size=500))
        inner = StratifiedKFold(5, shuffle=True, random_state=0)
        search = GridSearchCV(machine, {"svc__C": PENALTIES}, cv=inner).fit(x[train_ids], y[train_ids])
        found.append(search.score(x[test_ids], y[test_ids]))
    return float(np.mean(found))


def embeddings(data: Graphs, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Untrained and trained, and after how many steps."""
    recipe, config = recipes.load_method("infograph").paper
    session = TrainingSession(recipe, _with(config, seed, data), RuntimeConfig(device="cpu"), data.drop_labels(), torch.device("cpu"))
    untrained = encode_all(recipe, session.net, data, session.device).numpy()
    train(session)
    return untrained, encode_all(recipe, session.net, data, session.device).numpy(), session.steps


def _with(run: Any, seed: int, data: Graphs) -> Any:
    """20 passes as the authors count them: the incomplete last batch of a pass is a step too."""
    from dataclasses import replace

    batch = min(run.batch_size, len(data))
    return replace(run, seed=seed, batch_size=batch, epochs=None, steps=round(run.epochs * -(-len(data) // batch)))


def summary(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    values = [row[name] for row in rows]
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, "runs": len(values)}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row was measured with today's `paper` preset."""
    return agrees(row, SETTINGS, training_of("infograph", **SETTINGS))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "tu", help="folder with a folder for each set, with 10fold_idx in it")
    parser.add_argument("--sets", default="MUTAG")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    sets: dict[str, Any] = stored("infograph").get("sets", {})
    for name in args.sets.split(","):
        data, folds = load_all_graphs(args.data / name), read_gin_folds(args.data / name)
        y = np.asarray(data.labels)
        entry = sets.get(name) if not args.again else None
        if entry is None:
            floors = {k: accuracy(np.asarray(f.train), y, folds) for k, f in GraphModality().compute_baselines(data, data, None).items()}
            entry = {"graphs": len(data), "majority": float(np.bincount(y).max() / len(y)), "floors": floors, "rows": []}
            print(name, {k: round(100 * v, 1) for k, v in floors.items()}, flush=True)
        for seed in range(args.seeds):
            if any(row["seed"] == seed and is_current(row) for row in entry["rows"]):
                continue
            began = time.perf_counter()
            untrained, trained, steps = embeddings(data, seed)
            seconds = round(time.perf_counter() - began, 1)
            found = {"untrained": accuracy(untrained, y, folds), "infograph": accuracy(trained, y, folds)}
            row = {"seed": seed, "steps": steps, "seconds": seconds, **found}
            row |= provenance(SETTINGS, data.fingerprint, training_of("infograph", **SETTINGS))
            check_row("infograph", row)
            entry["rows"] = sorted([r for r in entry["rows"] if r["seed"] != seed] + [row], key=lambda r: r["seed"])
            print(f"{name} seed {seed}: {100 * found['infograph']:.1f}, untrained {100 * found['untrained']:.1f}, {seconds} s", flush=True)
            entry["accuracy"] = {k: summary(entry["rows"], k) for k in ("untrained", "infograph")}
            sets[name] = entry
            write("infograph", {"protocol": "10 folds of the files, SVM, C by inner cross-validation, last step", "sets": sets})


if __name__ == "__main__":
    main()
