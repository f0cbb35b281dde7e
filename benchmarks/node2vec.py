"""node2vec on BlogCatalog: macro- and micro-F1 of groups, beside vectors that nobody trained and the spectrum of the graph itself.

    python benchmarks/node2vec.py [--seed 0]            once for each seed
    python benchmarks/node2vec.py floors
    python benchmarks/node2vec.py choose --lr 0.1       by labels of half of the nodes only

--data: default $NEARFAR_DATA/blogcatalog, or ~/.cache/nearfar/blogcatalog. The default settings are those of the stored rows.

The protocol of the paper: half of the labelled nodes teach logistic regressions, one against the rest, which answer for the other half;
of a node in k groups the k best-scored ones are its answer; ten draws, the same for all vectors; the last epoch is measured. Settings
are chosen within the half of the nodes that the first draw learns from.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
from common import keep_part
from provenance import DATA, Training, agrees, provenance

from nearfar.core import RandomKey, RuntimeConfig, TrainConfig
from nearfar.data.walks.dataset import WalkGraph
from nearfar.data.walks.load import load_walks
from nearfar.evaluate.multilabel import multilabel_f1
from nearfar.modalities.walks import compute_adjacency_svd, compute_log_degrees
from nearfar.recipes.graph.node2vec import Node2Vec
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train

DRAWS = RandomKey(0)("benchmark", "draws")
"""Names the label splits: the same for all vectors and seeds."""


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that a stored part keeps."""
    return {name: value for name, value in vars(args).items() if name not in ("data", "what", "seed")}


def chosen(args: argparse.Namespace) -> tuple[Node2Vec, TrainConfig]:
    """Return the recipe and the run that these arguments describe."""
    recipe = Node2Vec(
        dim=args.dim,
        walk_length=args.walk_length,
        walks_per_node=args.walks,
        return_parameter=args.p,
        in_out_parameter=args.q,
        window=args.window,
    )
    return recipe, TrainConfig(batch_size=args.batch, epochs=args.epochs, optimizer="adagrad", lr=args.lr, warmup_ratio=0.0, seed=args.seed)


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored part has the default settings of this script."""
    args = parser().parse_args([])
    return agrees(row, settings(args), Training(*chosen(args)))


def session_of(graph: WalkGraph, args: argparse.Namespace) -> TrainingSession:
    """Build a training session on the CPU."""
    recipe, config = chosen(args)
    return TrainingSession(recipe, config, RuntimeConfig(device="cpu"), graph, torch.device("cpu"))


def judged(vectors: torch.Tensor, graph: WalkGraph, args: argparse.Namespace) -> dict[str, Any]:
    return dataclasses.asdict(multilabel_f1(vectors, torch.from_numpy(graph.groups), rng_key=DRAWS, draws=args.draws, C=args.C))


def trained(graph: WalkGraph, args: argparse.Namespace) -> tuple[torch.Tensor, dict[str, Any]]:
    session = session_of(graph, args)
    began, cpu = time.perf_counter(), time.process_time()
    train(session)
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu, "steps": session.steps}
    return session.net.encoder.weight.detach(), took


def choose(graph: WalkGraph, args: argparse.Namespace) -> dict[str, Any]:
    """Within the nodes that the first draw learns from: half of them teach, the other half answers."""
    learnt = DRAWS("draw", 0).permutation(len(graph))[: len(graph) // 2]
    vectors, took = trained(graph, args)
    groups = torch.from_numpy(graph.groups)[learnt]
    found = {C: multilabel_f1(vectors[learnt], groups, rng_key=DRAWS("choose"), draws=2, C=C).macro for C in (0.3, 1.0, 3.0)}
    return {"macro by C": found, **took}


def floors(graph: WalkGraph, args: argparse.Namespace) -> dict[str, Any]:
    rows = {
        "untrained": session_of(graph, args).net.encoder.weight.detach(),
        "degree": compute_log_degrees(graph),
        "adjacency SVD": compute_adjacency_svd(graph, args.dim),
    }
    return {name: judged(vectors, graph, args) for name, vectors in rows.items()}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="run", choices=["run", "floors", "choose"])
    parser.add_argument("--data", type=Path, default=DATA / "blogcatalog", help="blogcatalog.mat, or the folder it is in")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--walk-length", type=int, default=80)
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--window", type=int, default=10)
    parser.add_argument("--p", type=float, default=0.25)
    parser.add_argument("--q", type=float, default=0.25)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    graph = load_walks(args.data)
    if args.what == "choose":
        print(vars(args), choose(graph, args), flush=True)
        return
    if args.what == "floors":
        found = floors(graph, args)
    else:
        vectors, took = trained(graph, args)
        found = {"seed": args.seed, **judged(vectors, graph, args), **took}
    print(json.dumps(found, indent=1))
    found |= provenance(settings(args), graph.fingerprint, Training(*chosen(args)))
    keep_part("node2vec", {"run": "runs"}.get(args.what, args.what), found, ("runs", "macro", "macro-F1"))


if __name__ == "__main__":
    main()
