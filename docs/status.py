"""What is claimed, and what proves it: a test that exists, or a measured number that meets its bound."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEEDS = 3
Result = Callable[[str], dict[str, Any] | None]

TESTED = {
    "Resume is bit-exact, for every recipe": "test_contract.py::test_resume_is_bit_exact",
    "kill -9 at random steps, in the middle of a save and before the first checkpoint": "test_kill.py::test_killed_again_and_again",
    "Chunks give the gradient of the whole batch": "test_contract.py::test_chunks_give_the_gradient_of_the_whole_batch",
    "Two ranks give the gradient of one": "test_ranks.py::test_two_ranks_give_the_gradient_of_one",
    "Loader workers do not matter": "test_contract.py::test_workers_do_not_matter",
    "A config repeats a run exactly": "test_contract.py::test_a_config_repeats_a_run_exactly",
    "Damage anywhere in a checkpoint is noticed": "test_checkpoint.py::test_a_flipped_bit_or_a_truncation_anywhere_is_noticed",
    "A full disk keeps the old checkpoint": "test_checkpoint.py::test_a_full_disk_keeps_the_old_checkpoint_and_says_so",
    "NaN stops a run within one step": "test_train.py::test_divergence_stops_within_one_step_and_keeps_the_last_good_checkpoint",
    "A collapse is seen while training": "test_train.py::test_collapse_is_seen_while_training",
    "Rooms import only from rooms above them": "test_rooms.py::test_rooms_import_only_from_rooms_above_them",
    "All triplets by sorting equal the triple loop": "test_losses_triplet.py::test_values_and_gradients_equal_loops_over_triplets",
    "Statistics of rows do not depend on blocks": "test_scores_rowmap.py::test_values_and_gradients_equal_plain_autograd_for_every_block",
    "CUDA kernels are right (Triton's interpreter)": "test_kernels.py::test_statistics_are_right_to_single_precision",
    "The wheel works in an empty environment": "test_house.py::test_the_wheel_works_in_an_empty_environment",
}


def gain(found: dict[str, Any], recipe: str, column: str) -> float:
    """Points above the best baseline, averaged over the seeds."""
    rows = [r["results"] for r in found["rows"] if r["recipe"] == recipe]
    return 100 * statistics.mean(
        next(x[column] for x in r if not x["baseline"]) - max(x[column] for x in r if x["baseline"]) for r in rows
    )  # fmt: skip


MEASURED: list[tuple[str, str, Callable[[dict[str, Any]], float], float, bool]] = [
    ("SimCLR on digits, 5 labels a class: points above the best baseline", "digits", lambda f: gain(f, "simclr", "few_labels"), 5.0, True),
    ("MoCo on digits, likewise", "digits", lambda f: gain(f, "moco", "few_labels"), 0.0, True),
    ("MoCo v2 on digits, likewise", "digits", lambda f: gain(f, "moco-v2", "few_labels"), 0.0, True),
    ("BYOL on digits, likewise", "digits", lambda f: gain(f, "byol", "few_labels"), 0.0, True),
    ("Barlow Twins on digits, likewise", "digits", lambda f: gain(f, "barlow-twins", "few_labels"), 0.0, True),
    (
        "SimCLR on CIFAR-10, two cores, linear probe: points above the best baseline",
        "cifar_cpu",
        lambda f: gain(f, "simclr", "linear"),
        0.0,
        True,
    ),
    ("SimCLR on CIFAR-10, two cores, kNN: points above the best baseline", "cifar_cpu", lambda f: gain(f, "simclr", "knn"), 0.0, True),
    ("Views on CPU, times as fast as kornia", "views", lambda f: min(r["ratio"] for r in f["results"]), 2.0, True),
    ("The loop's own cost, ms a step", "loop", lambda f: f["own_ms"], 0.4, False),
]
"""Claim, result file, number, bound, whether more is better."""


def status(root: Path, result: Result) -> str:
    known = _tests(root / "tests")
    lines = ["# Status", "", "Made by `docs/generate.py` from the tests and from `benchmarks/results/`.", "", "## Held by a test", ""]
    lines += ["| claim | test |", "|---|---|"]
    lines += [f"| {claim} | {f'`tests/{name}`' if name in known else '**open**: no such test'} |" for claim, name in TESTED.items()]
    lines += ["", "## Measured", "", "| claim | measured | wanted | state |", "|---|--:|--:|---|"]
    for claim, file, number, bound, more in MEASURED:
        found = result(file)
        value = number(found) if found else None
        state = "**open**" if found is None or value is None else _state(found, value > bound if more else value < bound, claim)
        shown = "–" if value is None else f"{value:.2f}"
        lines.append(f"| {claim} | {shown} | {'>' if more else '<'} {bound:g} | {state} |")
    return "\n".join(lines) + "\n"


def _state(found: dict[str, Any], met: bool, claim: str) -> str:
    """An accuracy counts from three seeds on; speeds have none."""
    seeds = {r["seed"] for r in found.get("rows", [])}
    if "points above" in claim and len(seeds) < SEEDS:
        return f"**open**: {len(seeds)} of {SEEDS} seeds"
    return "proven" if met else "**short**"


def _tests(folder: Path) -> set[str]:
    return {
        f"{path.name}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }
