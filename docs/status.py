"""What is claimed, and what proves it: a test that exists, or a measured number that meets its bound."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cifar_rows import is_current
from gpu_checks import gpu_checks
from results_cifar import DEMO_PUBLISHED, ENCODER, PUBLISHED, SHORT_NAMES, demo_knn, values

SEEDS = 3
SETTLED = {"deepcluster", "instance-discrimination-npid", "w-mse"}
"""Methods whose tiny settings were settled with a look at two of the seeds that digits are measured with."""
DEFAULT_HYBRID = "BM25 + encoder before training, half and half"
"""The hybrid search of `nearfar ask` without options: BM25 and the encoder with weight 0.5 each."""
MEASURES = {"knn": "kNN", "linear": "linear probe"}
Result = Callable[[str], dict[str, Any] | None]

TESTED = {
    "Resume is bit-exact, for every recipe": "test_contract.py::test_resume_is_bit_exact",
    "kill -9 at random steps, in the middle of a save and before the first checkpoint": "test_kill.py::test_killed_again_and_again",
    "Chunks give the gradient of the whole batch": "test_contract.py::test_chunks_give_the_gradient_of_the_whole_batch",
    "Two ranks give the gradient of one": "test_ranks.py::test_two_ranks_give_the_gradient_of_one",
    "Ranks train the net of one process, batch normalisation included": "test_torchrun.py::test_three_ranks_train_as_one",
    "A run killed on two ranks goes on with one": "test_torchrun.py::test_killed_on_two_ranks_continued_on_one_then_on_two",
    "Images are read without memory growing": "test_jpegs.py::test_memory_is_flat_over_many_batches",
    "Loader workers do not matter": "test_contract.py::test_workers_do_not_matter",
    "A config repeats a run exactly": "test_contract.py::test_a_config_repeats_a_run_exactly",
    "Damage anywhere in a checkpoint is noticed": "test_checkpoint.py::test_a_flipped_bit_or_a_truncation_anywhere_is_noticed",
    "A full disk keeps the old checkpoint": "test_checkpoint.py::test_a_full_disk_keeps_the_old_checkpoint_and_says_so",
    "NaN stops a run within one step": "test_train.py::test_divergence_stops_within_one_step_and_keeps_the_last_good_checkpoint",
    "A collapse is seen while training": "test_train.py::test_collapse_is_seen_while_training",
    "Packages import only from packages before them": "test_imports.py::test_packages_import_only_from_packages_before_them",
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


def rate(found: dict[str, Any], batch: int) -> dict[str, Any]:
    return next(r for r in found["results"] if r["batch"] == batch and r["compile"])


def on_gpu(found: dict[str, Any], loss: str, n: int, d: int, by: str = "nearfar") -> dict[str, Any]:
    return next(r for r in found["results"] if (r["loss"], r["n"], r["d"], r["implementation"]) == (loss, n, d, by))


def over_compile(found: dict[str, Any], loss: str, n: int, d: int) -> float:
    return on_gpu(found, loss, n, d)["ms"] / on_gpu(found, loss, n, d, "torch.compile")["ms"]


def on_cpu(found: dict[str, Any], loss: str, n: int, threads: int) -> dict[str, Any]:
    return next(r for r in found["results"] if (r["loss"], r["n"], r["threads"], r["implementation"]) == (loss, n, threads, "nearfar"))


def worst(found: dict[str, Any], n: int, threads: int, what: str) -> float:
    rows = [r for r in found["results"] if (r["n"], r["threads"], r["implementation"]) == (n, threads, "nearfar")]
    return max(r[what] for r in rows)


def cora(found: dict[str, Any], recipe: str) -> float | None:
    """Test accuracy in percent."""
    of = found["test accuracy"].get(recipe)
    return of and 100 * of["trained"]["mean"]


def over_dgi(found: dict[str, Any]) -> float | None:
    """Points between the means, less twice the standard error of their difference."""
    if "mvgrl" not in found["test accuracy"]:
        return None
    mine, theirs = (found["test accuracy"][recipe]["trained"] for recipe in ("mvgrl", "dgi"))
    error = sum(of["std"] ** 2 / of["runs"] for of in (mine, theirs)) ** 0.5
    return 100 * (mine["mean"] - theirs["mean"] - 2 * error)


def mutag(found: dict[str, Any], who: str) -> float:
    return found["sets"]["MUTAG"]["accuracy"][who]["mean"]


def mutag_gain(found: dict[str, Any]) -> float:
    gains = [100 * (row["infograph"] - row["untrained"]) for row in found["sets"]["MUTAG"]["rows"]]
    return statistics.mean(gains) - 2 * statistics.stdev(gains) / len(gains) ** 0.5


def blogs(found: dict[str, Any]) -> float | None:
    return 100 * found["macro-F1"]["mean"] if len(found["runs"]) >= SEEDS else None


def gained(found: dict[str, Any], floors: Sequence[str], **of: str) -> float | None:
    """How far training is above the best of the floors, in points, after twice the paired standard error is taken off. `of`: which row."""
    rows = [r for r in found["summary"] if all(r[key] == value for key, value in of.items()) and r["seeds"] >= SEEDS]
    return 100 * min(rows[0][f"gain over {x}"] - 2 * rows[0][f"standard error, {x}"] for x in floors) if rows else None


def hybrid_gain(found: dict[str, Any]) -> float:
    """Return the lower end of the MRR's gain of the default hybrid over BM25 alone."""
    return found["summary"]["xquad"]["differences"][f"{DEFAULT_HYBRID} - BM25"]["MRR"]["low"]


def sts_b(found: dict[str, Any]) -> float:
    score = found["results"]["all-minilm"]["sets"]["STS-B"]
    return 100 * (score["all"] if isinstance(score, dict) else score)


def over_language_model(found: dict[str, Any], method: str, errors: int = 0) -> float | None:
    """Points of STS-B's development pairs above the masked language model, whichever of its poolings is better, less some errors."""
    rows = [r for r in found["summary"] if (r["method"], r["metric"]) == (method, "STS-B dev") and r["floor"].startswith("masked")]
    return 100 * min(r["gain"] - errors * r["error"] for r in rows) if rows and rows[0]["seeds"] >= SEEDS else None


def over_floors(found: dict[str, Any], method: str) -> float | None:
    """Points of STS-B's test pairs, which nothing was chosen by, above the best floor, less twice the standard error."""
    rows = [r for r in found["summary"] if (r["method"], r["metric"]) == (method, "STS-B")]
    return 100 * min(r["gain"] - 2 * r["error"] for r in rows) if rows and rows[0]["seeds"] >= SEEDS else None


def captioned(verdicts: list[dict[str, Any]], metric: str) -> float | None:
    """Points of recall above the best floor, less twice the error."""
    rows = [v for v in verdicts if v["metric"] == metric and v["seeds"] >= SEEDS]
    return 100 * (rows[0]["gain"] - 2 * rows[0]["error"]) if rows else None


def over_gensim(found: dict[str, Any], method: str) -> tuple[float, float]:
    """How much better vectors agree with WordSim-353 than gensim's, and how many times as many words a second are read."""
    of = found["methods"][method]
    return of["WordSim-353 of nearfar - gensim"], statistics.median(of["speed of nearfar / gensim"])


def on_cifar(found: dict[str, Any], representation: str, column: str) -> float | None:
    """Return one measure of a CIFAR-10 row, in percent; None if the row has no such representation."""
    measured = values([found], representation, column)
    return measured[0] if measured else None


CIFAR = [
    *((name, 0, x.representation, "knn", x.accuracy) for name, x in PUBLISHED.items() if name != "simclr"),
    *(("simclr", seed, ENCODER, column, bound) for seed in range(SEEDS) for column, bound in (("knn", 85.5), ("linear", 88.0))),
    ("supcon", 0, ENCODER, "linear", 91.0),
]
"""Method, seed, representation, measure and bound: the published kNN, and for SimCLR more than that."""

DRAWINGS = [f"{what}, {how}" for what in ("raw pixels", "untrained encoder") for how in ("cosine", "L2")]
"""Floors of Omniglot."""
METRIC = ("facenet", "hadsell-drlim", "hermans-batch-hard", "lifted-structure", "npair-sohn", "sampling-matters-wu2017")

MEASURED: list[tuple[str, str, Callable[[dict[str, Any]], float | None], float, bool]] = [
    (
        "`simclr` on digits, 5 labels a class: points above the best baseline",
        "digits",
        lambda f: gain(f, "simclr", "few_labels"),
        5.0,
        True,
    ),
    (
        "SimCLR on CIFAR-10, two cores, linear probe: points above the best baseline",
        "cifar_cpu",
        lambda f: gain(f, "simclr", "linear"),
        0.0,
        True,
    ),
    ("SimCLR on CIFAR-10, two cores, kNN: points above the best baseline", "cifar_cpu", lambda f: gain(f, "simclr", "knn"), 0.0, True),
    *((f"`{name}` on CIFAR-10, ResNet-18, 200 epochs, seed {seed}: {MEASURES[column]}, {SHORT_NAMES[x]}", f"cifar/{name}-{seed}",
       lambda f, x=x, column=column: on_cifar(f, x, column), bound, True) for name, seed, x, column, bound in CIFAR),
    ("MoCo as in its authors' demonstration on CIFAR-10, seed 0: kNN, head", "moco_demo", demo_knn, DEMO_PUBLISHED, True),
    *((f"`{name}` on 10,000 images of CIFAR-10, one thread, {what}: points above the better floor, less twice the standard error", "dim",
       lambda f, name=name, column=column: gained(f, ("untrained encoder", "raw pixels"), method=name, metric=column), 0.0, True)
      for name in ("dim", "amdim") for column, what in (("linear", "linear probe"), ("knn", "kNN"))),
    ("Views on CPU, times as fast as kornia", "views", lambda f: min(r["ratio"] for r in f["results"]), 2.0, True),
    ("The loop's own cost, ms a step", "loop", lambda f: f["own_ms"], 0.4, False),
    ("One H200, batch 512: images a second through `nearfar fit`", "throughput", lambda f: rate(f, 512)["fit"], 33_000, True),
    ("One H200, batch 1024: likewise", "throughput", lambda f: rate(f, 1024)["fit"], 33_000, True),
    ("The same, over a bare loop", "throughput", lambda f: min(rate(f, 512)["ratio"], rate(f, 1024)["ratio"]), 0.95, True),
    ("One H200, CLIP, 16,384 pairs, d = 512: ms", "losses_gpu", lambda f: on_gpu(f, "CLIP", 16_384, 512)["ms"], 2.2, False),
    ("The same: extra GiB", "losses_gpu", lambda f: on_gpu(f, "CLIP", 16_384, 512)["gib"], 0.35, False),
    ("CLIP, 65,536 pairs: % of the GEMM rate", "losses_gpu", lambda f: on_gpu(f, "CLIP", 65_536, 512)["percent_of_gemm"], 52.0, True),
    ("CLIP, d = 128: time over torch.compile's", "losses_gpu", lambda f: over_compile(f, "CLIP", 16_384, 128), 1.0, False),
    ("NT-Xent, 16,384 pairs, d = 512: ms", "losses_gpu", lambda f: on_gpu(f, "NT-Xent", 16_384, 512)["ms"], 9.0, False),
    (
        "InfoNCE, 16,384 pairs, d = 512: time over torch.compile's",
        "losses_gpu",
        lambda f: over_compile(f, "InfoNCE", 16_384, 512),
        1.0,
        False,
    ),
    (
        "One thread, N = 4096: InfoNCE's time over plain torch's",
        "losses_cpu",
        lambda f: on_cpu(f, "InfoNCE", 4096, 1)["of_plain"],
        0.6,
        False,
    ),
    ("NT-Xent's", "losses_cpu", lambda f: on_cpu(f, "NT-Xent", 4096, 1)["of_plain"], 0.35, False),
    ("SupCon's", "losses_cpu", lambda f: on_cpu(f, "SupCon", 4096, 1)["of_plain"], 0.3, False),
    ("Largest share of plain torch's memory, N = 4096", "losses_cpu", lambda f: worst(f, 4096, 1, "mb_of_plain"), 0.2, False),
    ("Slowest loss over plain torch, N = 256, one thread", "losses_cpu", lambda f: worst(f, 256, 1, "of_plain"), 1.15, False),
    ("Likewise on two threads", "losses_cpu", lambda f: worst(f, 256, 2, "of_plain"), 1.15, False),
    ("Slowest loss over plain torch, N = 4096, two threads", "losses_cpu", lambda f: worst(f, 4096, 2, "of_plain"), 1.0, False),
    ("Batch of 16,384 images in chunks of 512: GiB", "chunks", lambda f: f["results"][2]["peak_gib"], 8.0, False),
    ("DGI on Cora, public split, mean of 20 runs: test accuracy", "nodes", lambda f: cora(f, "dgi"), 81.5, True),
    ("DGI on Cora: runs", "nodes", lambda f: f["test accuracy"]["dgi"]["trained"]["runs"], 19, True),
    ("MVGRL on Cora, public split, mean of 20 runs: test accuracy", "nodes", lambda f: cora(f, "mvgrl"), 82.3, True),
    ("MVGRL on Cora: points above DGI, less twice the standard error", "nodes", over_dgi, 0.0, True),
    ("InfoGraph on MUTAG, ten folds: accuracy", "infograph", lambda f: 100 * mutag(f, "infograph"), 87.0, True),
    ("InfoGraph on MUTAG: points above the untrained encoder, less twice the standard error", "infograph", mutag_gain, 0.0, True),
    ("TransE on WN18, filtered: hits@10", "transe", lambda f: 100 * f["hits@10"]["mean"], 87.0, True),
    ("TransE: triples a second over PyKEEN's, by the clock", "transe", lambda f: f["speed"]["median"]["wall"], 3.0, True),
    ("node2vec on BlogCatalog, half of the labels: macro-F1", "node2vec", blogs, 25.0, True),
    *((f"Sound, `{name}`, {what}: points above the better floor, less twice the standard error", "sound",
       lambda f, name=name, what=what: gained(f, ("untrained encoder", "log-mel statistics"), experiment=name, metric=what), 0.0, True)
      for name in ("nandan-vepa/fsdd", "cpc-audio/fsdd", "wav2vec2/fsdd", "nandan-vepa/esc10", "cpc-audio/esc10", "wav2vec2/esc10")
      for what in ("linear", "few_labels")),
    *((f"ST-DIM on {game}, {what}: points of F1 above the better floor, less twice the standard error", "games",
       lambda f, game=game, metric=metric: gained(f, ("untrained encoder", "majority class"), game=game, metric=metric), 0.0, True)
      for game in ("pong", "breakout") for metric, what in (("f1", "published protocol"), ("f1 converged", "probes to convergence"))),
    *((f"CLIP on Flickr8k, recall at 10, {way}: points above borrowed words, less twice the error", "flickr8k",
       lambda f, metric=metric: captioned(f["verdicts"]["scratch"], metric), 0.0, True)
      for metric, way in (("to_text_10", "image to text"), ("to_image_10", "text to image"))),
    *((f"CLIP on emojis, recall at 10, {way}: points above the best floor, less twice the error", "emoji",
       lambda f, metric=metric: captioned(f.get("verdicts", []), metric), 0.0, True)
      for metric, way in (("to_text_10", "drawing to name"), ("to_image_10", "name to drawing"), ("drawing_10", "drawing to drawing"))),
    *((f"`{name}` on Omniglot's unseen alphabets, {what}: points above the best floor, less twice the standard error", "omniglot",
       lambda f, name=name, measure=measure: gained(f, DRAWINGS, method=name, metric=measure), 0.0, True)
      for name in METRIC for measure, what in (("recall", "recall at 1"), ("one_shot", "20-way 1-shot"))),
    ("BM25 and a pretrained encoder, half and half (default of `nearfar ask`), over BM25, XQuAD: lower end of the MRR's gain", "qa",
     hybrid_gain, 0.0, True),
    ("Search over HTTP, 100,000 × 128, batched: over raw FAISS", "serve", lambda f: f["index"]["ratio"], 0.7, True),
    ("64 clients for a minute: answers lost or wrong", "serve", lambda f: f["load"]["lost"] + f["load"]["different"], 1, False),
    ("Explorer, 100,000 points: redraw after a zoom, ms", "explorer", lambda f: f["zoom_redraw_ms"]["median"], 250, False),
    ("Diagnosis: false alarms and misses", "diagnose", lambda f: f["summary"]["false alarms"] + f["summary"]["misses"], 1, False),
    *((f"word2vec, {method}: WordSim-353, with which settings were settled, above gensim's", "word2vec",
       lambda f, method=method: over_gensim(f, method)[0], -0.02, True)
      for method in ("skip-gram", "cbow")),
    *((f"word2vec, {method}: words a second over gensim's", "word2vec", lambda f, method=method: over_gensim(f, method)[1], 1.0, True)
      for method in ("skip-gram", "cbow")),
    *((f"`{method}`: points of STS-B dev, which settings were chosen by, above its own masked language model", "sentences",
       lambda f, method=method: over_language_model(f, method), 10.0, True) for method in ("simcse-unsup", "simcse-sup")),
    ("Whitening: points of STS-B dev above the raw masked language model, less twice the standard error", "sentences",
     lambda f: over_language_model(f, "bert-whitening", 2), 0.0, True),
    *((f"`{method}`: points of STS-B test above the best floor (tf-idf), less twice the standard error", "sentences",
       lambda f, method=method: over_floors(f, method), 0.0, True) for method in ("simcse-unsup", "simcse-sup", "bert-whitening")),
    ("all-MiniLM on STS-B, through the same interface: Spearman", "sts_all-minilm", sts_b, 82.0, True),
]  # fmt: skip
"""Claim, result file, number, bound, whether more is better."""


NOTE = (
    "Where twice the standard error is taken off, what is left above 0 is so in 91 of 100 cases with three seeds, in 97 of 100 with twenty "
    "(Student's t, one side)."
)


def status(root: Path, result: Result, stored_rows: Sequence[str] = ()) -> str:
    """Return the page. `stored_rows` are the lines of its section on provenance."""
    known = _tests(root / "tests")
    lines = ["# Status", "", "Made by `docs/generate.py` from the tests and from `benchmarks/results/`.", "", "## Held by a test", ""]
    lines += ["| claim | test |", "|---|---|"]
    lines += [f"| {claim} | {f'`tests/{name}`' if name in known else '**open**: no such test'} |" for claim, name in TESTED.items()]
    lines += ["", "## Measured", "", NOTE, "", "| claim | measured | wanted | state |", "|---|--:|--:|---|"]
    for claim, file, number, bound, more in [*_on_digits(result), *MEASURED]:
        found = result(file)
        value = number(found) if found else None
        state = "**open**" if found is None or value is None else _state(found, value > bound if more else value < bound, claim, result)
        shown = "–" if value is None else f"{value:.2f}"
        lines.append(f"| {claim} | {shown} | {'>' if more else '<'} {bound:g} | {state} |")
    lines += ["", *stored_rows] if stored_rows else []
    lines += ["", *gpu_checks(result("gpu_checks"))]
    return "\n".join(lines) + "\n"


def _on_digits(result: Result) -> list[tuple[str, str, Callable[[dict[str, Any]], float], float, bool]]:
    """A line for every recipe that was measured there."""
    names = sorted({r["recipe"] for r in (result("digits") or {"rows": []})["rows"]} - {"simclr"})
    what = "on digits, 5 labels a class: points above the best baseline"
    settled = lambda name: " (settings settled with a look at two of the seeds)" if name in SETTLED else ""
    return [(f"`{name}` {what}{settled(name)}", "digits", lambda f, name=name: gain(f, name, "few_labels"), 0.0, True) for name in names]


def _state(found: dict[str, Any], met: bool, claim: str, result: Result) -> str:
    """An accuracy counts from three seeds on, or says that it has one; speeds have none."""
    if "points above the best baseline" in claim:
        named = re.match(r"`([^`]+)`", claim)
        seeds = {r["seed"] for r in found["rows"] if named is None or r["recipe"] == named[1]}
        if len(seeds) < SEEDS:
            return f"**open**: {len(seeds)} of {SEEDS} seeds"
    remarks = _remarks(found, result) if {"method", "seed"} <= found.keys() else []
    return ", ".join(["proven" if met else "**short**", *remarks])


def _remarks(row: dict[str, Any], result: Result) -> list[str]:
    """What else is to be known of a row of CIFAR-10."""
    alone = all(result(f"cifar/{row['method']}-{seed}") is None for seed in range(SEEDS) if seed != row["seed"])
    return ["one seed"] * alone + ["earlier settings than the script's"] * (not is_current(row))


def _tests(folder: Path) -> set[str]:
    return {
        f"{path.name}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }
