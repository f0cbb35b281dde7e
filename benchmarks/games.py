"""ST-DIM on Atari games: which variables of a game's memory frozen features tell, beside the untrained encoder and the majority class.

    nearfar record pong --frames 100000 --to FOLDER/pong.games       (needs nearfar[control]; likewise breakout, ms_pacman)
    python benchmarks/games.py [--data FOLDER] [--games pong,breakout] [--seeds 0,1,2] [--device cuda]

FOLDER: default $NEARFAR_DATA/games, or ~/.cache/nearfar/games. Rows accumulate in benchmarks/results/games.json: those that are there
with today's settings are not run again unless --again is given.
Protocol: frames of a random policy, as many as the rows say. Seed s draws the episodes and the initialisation: three in five episodes
train the encoder, without labels; three in ten teach a linear probe for each variable; one in ten is asked about, less the frames that
occur among those that teach. Last step. F1 weighted by value, mean over categories of variables, variables of less than 0.6 nats left
out (AtariARI).
f1: probes as the paper trains them, by Adam on features as they are, stopped by a validation split. f1 converged: logistic regression
on standardised features, under which the untrained encoder does far better. Floors in the same run: the same network before its first
step, the most frequent value. A row of the summary is short where training does not gain more than twice the paired standard error over
both. The published figures are of 100,000 frames for the encoder, 35,000 for the probes and other episodes: they stand beside. Settings
are looked at on episodes inside the training split only (--validate: that split is divided again, and nothing is written).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import add, changes, gains_over, is_measured
from provenance import DATA, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import TrainConfig
from nearfar.data.frames.dataset import Frames
from nearfar.data.frames.load import load_all_frames
from nearfar.modalities import find_modality
from nearfar.recipes import load_method

SETTINGS = {
    "encoder": "nature",
    "batch_size": 64,
    "steps": 20_000,
    "lr": 3e-4,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "warmup_ratio": 0.02,
}
PUBLISHED = {"pong": 0.81, "breakout": 0.88, "ms_pacman": 0.72}
SOURCE = "ST-DIM, arXiv:1906.08226, table 2, unverified"
FLOORS = ("untrained encoder", "majority class")
TRAINED, METRICS = "trained encoder", ("f1", "f1 converged")


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    return agrees(row, SETTINGS, training_of("st-dim", SETTINGS))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA / "games", help="the folder of GAME.games")
    parser.add_argument("--games", default="pong,breakout")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of validation episodes and write nothing")
    parser.add_argument("--set", default="", help="other settings, as steps=2000,lr=1e-3; the rows name them")
    parser.add_argument("--frames", type=int, help="with --validate: only so many frames, from the first on")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    changed = changes(args.set)
    for game in args.games.split(","):
        frames = None
        for seed in map(int, args.seeds.split(",")):
            if not args.validate and not args.again and is_measured("games", is_current, game=game, seed=seed):
                continue
            frames = frames or opened(args.data / f"{game}.games", args.frames if args.validate else None)
            if args.validate:
                show(row(game, seed, within(frames, seed), args.device, changed))
                continue
            found = row(game, seed, frames, args.device, changed)
            show(found)
            add("games", found, ("game", "seed"), about)


def opened(path: Path, most: int | None) -> Frames:
    began = time.perf_counter()
    frames = load_all_frames(path)
    print(f"{path.name}: {len(frames):,} frames decoded in {time.perf_counter() - began:.1f} s", flush=True)
    return frames.subset(np.arange(min(most or len(frames), len(frames))))


def within(frames: Frames, seed: int) -> Frames:
    """The training episodes alone."""
    return find_modality(load_method("st-dim").recipe_class.card.modality).build_inputs().load_splits(frames, TrainConfig(seed=seed)).train


def row(game: str, seed: int, frames: Frames, device: str, changes: dict) -> dict:
    began = time.perf_counter()
    model = fit("st-dim", frames, seed=seed, device=device, **({"log_every": 500} | SETTINGS | changes))
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    found = measure_model(model, frames).table
    return {
        "game": game, "seed": seed, "frames": len(frames), "seconds": round(seconds, 1),
        "seconds_in_all": round(time.perf_counter() - began, 1), "loss": last_loss(model.metrics),
        "protocol": found.protocol, "results": found.results,
        **provenance(SETTINGS | changes, model.data_fingerprint, training_of("st-dim", SETTINGS | changes)),
    }  # fmt: skip


def last_loss(metrics: list[dict]) -> float:
    return [m["loss"] for m in metrics if "loss" in m][-1]


def show(found: dict) -> None:
    print(f"{found['game']} seed {found['seed']}: trained in {found['seconds']} s, {found['seconds_in_all']} s in all, "
          f"loss {found['loss']:.3f}")  # fmt: skip
    for r in found["results"]:
        each = "  ".join(f"{name} {100 * value:.0f}" for name, value in r["f1_of"].items())
        print(f"  {r['representation']:18} F1 {100 * r['f1']:5.1f}, converged {100 * r['f1 converged']:5.1f}   {each}", flush=True)


def about(rows: list[dict]) -> dict:
    return {"published": PUBLISHED, "source": SOURCE, "summary": summary(rows)}


def summary(rows: list[dict]) -> list[dict]:
    """For each game and probe: F1 over seeds, what training gained over each floor, and the standard error of the paired differences."""
    found = []
    for game in sorted({r["game"] for r in rows}):
        tables = [{x["representation"]: x for x in r["results"]} for r in rows if r["game"] == game]
        for metric in METRICS:
            published = PUBLISHED.get(game) if metric == "f1" else None
            found.append({"game": game, "metric": metric, "published": published, **gains_over(tables, metric, TRAINED, FLOORS)})
    return found


if __name__ == "__main__":
    main()
