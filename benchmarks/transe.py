"""TransE on WN18 beside PyKEEN: the same triples, width, batch, corruptions, loss, kind of optimizer and threads, in one run.

    python benchmarks/transe.py [--seed 0]            filtered ranks of the test triples; once for each seed
    python benchmarks/transe.py floors                untrained vectors, and how often an entity occurs
    python benchmarks/transe.py speed                 triples a second, the two programs taking turns
    python benchmarks/transe.py choose --lr 0.3       ranks of validation triples, to choose settings by

--data is the folder of WN18; default: $NEARFAR_DATA/kg/WN18, or ~/.cache/nearfar/kg/WN18. The default
settings are those of the stored rows.

Quality: both ends of every triple are asked for, known triples of all splits are left out, ties count as the mean of the places they
share; the last epoch is measured. Speed: training triples over the time of training alone, warmed up, on as many threads as --threads
says. PyKEEN trains its own TransE (L1, unit entities, margin ranking loss, one uniform corruption, Adagrad) on the same tensors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import keep_part
from provenance import DATA, Training, agrees, provenance

from nearfar.core import RuntimeConfig, TrainConfig
from nearfar.data.triples.dataset import Triples
from nearfar.data.triples.load import load_triples
from nearfar.evaluate.link_prediction import LinkPredictionResult, TripleScorer, build_frequency_baseline, evaluate_link_prediction
from nearfar.recipes.graph.transe import TransE
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train

SETTINGS = ("dim", "gamma", "corruption", "batch", "epochs", "lr", "schedule")
"""Arguments that a stored part keeps as its settings; the speed also keeps `SPEED`."""
SPEED = ("rounds", "speed_epochs", "threads")


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one part."""
    return {name: getattr(args, name) for name in (SETTINGS + SPEED if args.what == "speed" else SETTINGS)}


def chosen(args: argparse.Namespace, seed: int, epochs: float) -> tuple[TransE, TrainConfig]:
    """Return the recipe and the run that these arguments describe."""
    recipe = TransE(dim=args.dim, margin=args.gamma, corruption=args.corruption)
    return recipe, TrainConfig(
        batch_size=args.batch, epochs=epochs, optimizer="adagrad", lr=args.lr, warmup_ratio=0.0, schedule=args.schedule, seed=seed
    )


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored part has the default settings of this script."""
    args = parser().parse_args(["speed" if "triples/s" in row else "quality"])
    return agrees(row, settings(args), Training(*chosen(args, 0, args.epochs)))


def session_of(data: Triples, args: argparse.Namespace, seed: int, epochs: float) -> TrainingSession:
    """Build a training session on the CPU."""
    recipe, config = chosen(args, seed, epochs)
    return TrainingSession(recipe, config, RuntimeConfig(device="cpu"), data, torch.device("cpu"))


def score_of(session: TrainingSession) -> TripleScorer:
    return lambda triples, side: session.recipe.score(session.net, triples, side)  # type: ignore[attr-defined]


def ranked(score: TripleScorer, data: Triples, asked: np.ndarray) -> LinkPredictionResult:
    return evaluate_link_prediction(score, torch.from_numpy(asked), torch.from_numpy(data.known_triples), len(data.entities))


def quality(data: Triples, asked: np.ndarray, args: argparse.Namespace) -> dict[str, Any]:
    session = session_of(data, args, args.seed, args.epochs)
    began, cpu = time.perf_counter(), time.process_time()
    train(session)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    found = dataclasses.asdict(ranked(score_of(session), data, asked))
    return {"seed": args.seed, **found, "seconds": took, "cpu_seconds": used, "steps": session.steps}


def floors(data: Triples, asked: np.ndarray, args: argparse.Namespace) -> dict[str, Any]:
    counted = build_frequency_baseline(torch.from_numpy(data.triples), len(data.entities), len(data.relations))
    scores = {"untrained": score_of(session_of(data, args, 0, 1)), "frequency": counted}
    return {name: dataclasses.asdict(ranked(score, data, asked)) for name, score in scores.items()}


def ours_a_second(data: Triples, args: argparse.Namespace) -> dict[str, float]:
    session = session_of(data, args, 0, args.speed_epochs)
    began, cpu = time.perf_counter(), time.process_time()
    train(session)
    count = session.steps * args.batch
    return {"wall": count / (time.perf_counter() - began), "cpu": count / (time.process_time() - cpu)}


def pykeens_a_second(data: Triples, args: argparse.Namespace) -> dict[str, float]:
    from pykeen.models import TransE as Theirs
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(torch.from_numpy(data.triples), num_entities=len(data.entities), num_relations=len(data.relations))
    model = Theirs(
        triples_factory=factory, embedding_dim=args.dim, scoring_fct_norm=1, loss="marginranking", loss_kwargs={"margin": args.gamma},
        random_seed=0,
    )  # fmt: skip
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    loop = SLCWATrainingLoop(model=model, triples_factory=factory, optimizer=optimizer, negative_sampler_kwargs={"num_negs_per_pos": 1})
    began, cpu = time.perf_counter(), time.process_time()
    loop.train(factory, num_epochs=args.speed_epochs, batch_size=args.batch, use_tqdm=False, use_tqdm_batch=False, num_workers=0)
    count = len(data.triples) * args.speed_epochs
    return {"wall": count / (time.perf_counter() - began), "cpu": count / (time.process_time() - cpu)}


def speed(data: Triples, args: argparse.Namespace) -> dict[str, Any]:
    """Rounds in which the two take turns, so that what else the machine does meets both; the first round warms up and is left out."""
    rounds = []
    for i in range(args.rounds + 1):
        found = {"nearfar": ours_a_second(data, args), "pykeen": pykeens_a_second(data, args)}
        print(found, flush=True)
        rounds += [found] if i else []
    ratio = {clock: [r["nearfar"][clock] / r["pykeen"][clock] for r in rounds] for clock in ("wall", "cpu")}
    return {"triples/s": rounds, "nearfar / pykeen": ratio, "median": {clock: float(np.median(v)) for clock, v in ratio.items()}}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="quality", choices=["quality", "floors", "speed", "choose"])
    parser.add_argument("--data", type=Path, default=DATA / "kg" / "WN18", help="a folder with train.txt, valid.txt and test.txt")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--gamma", type=float, default=2.0)
    parser.add_argument("--corruption", default="uniform")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--schedule", default="cosine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speed-epochs", type=int, default=3)
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    splits = load_triples(args.data)
    data, test = splits.train, splits.test.triples
    if args.what == "choose":
        print(vars(args), quality(data, data.valid_triples[:500], args), flush=True)
        return
    found = {"quality": lambda: quality(data, test, args), "floors": lambda: floors(data, test, args), "speed": lambda: speed(data, args)}
    measured = found[args.what]()
    print(json.dumps(measured, indent=1))
    measured |= provenance(settings(args), data.fingerprint, Training(*chosen(args, 0, args.epochs)))
    keep_part("transe", args.what, measured, ("quality", "hits10", "hits@10"))


if __name__ == "__main__":
    main()
