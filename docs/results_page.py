"""docs/results.md: every measured table, from benchmarks/results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import results_games
import results_language
import results_metric
import results_pictures
import results_questions
import results_sound
import results_tables
from results_cifar import CIFAR, DEMO, cifar, cifar_rows, demo
from results_more import NOTHING, SECTIONS, spread

Result = Callable[[str], dict[str, Any] | None]
Table = Callable[[list[str], list[list[str]]], str]

SELECTED_BY = {"sound": "sound_validation", "emoji": "emoji_trials"}
"""Result files whose settings were selected with the runs of another result file."""


def results_page(root: Path, result: Result, table: Table) -> str:
    """Return the page. Sections without numbers say so."""
    parts = ["# Results", "", "Made by `docs/generate.py` from `benchmarks/results/`. Every table names the script that measured it.", ""]
    parts += _section("CIFAR-10, ResNet-18, 200 epochs", "benchmarks/cifar.py", CIFAR, cifar(cifar_rows(root), table))
    found = result("moco_demo")
    body = NOTHING if found is None else demo(found, table)
    parts += _section("MoCo as in its authors' demonstration", "benchmarks/moco_demo.py", DEMO, body)
    parts += _section("Digits, every vision recipe", "benchmarks/digits.py", DIGITS, _digits(result("digits"), table))
    parts += _section("Training, images a second", "benchmarks/throughput.py", THROUGHPUT, _throughput(result("throughput"), table))
    parts += _section("Losses on a GPU", "benchmarks/losses.py --device cuda", LOSSES_GPU, _losses_gpu(result("losses_gpu"), table))
    parts += _section("Losses on a CPU", "benchmarks/losses.py", LOSSES_CPU, _losses_cpu(result("losses_cpu"), table))
    parts += _section("Batches larger than memory", "benchmarks/chunks.py", CHUNKS, _chunks(result("chunks"), table))
    parts += _section("Folders of JPEG files", "benchmarks/jpegs.py", JPEGS, _jpegs(result("jpegs"), table))
    modules = (results_sound, results_questions, results_language, results_pictures, results_metric, results_games, results_tables)
    for title, script, name, text, make in (*SECTIONS, *(section for module in modules for section in module.SECTIONS)):
        found = result(name)
        if found is not None and name in SELECTED_BY:
            found = {**found, "selection": result(SELECTED_BY[name])}
        parts += _section(title, script, text, NOTHING if found is None else make(found, table))
    return "\n".join(parts).rstrip() + "\n"


DIGITS = (
    "scikit-learn's digits, the tiny settings, mean ± standard deviation over the seeds' own splits; `supcon` and the later phases of "
    "SimCLR v2 saw labels. The settings of `deepcluster`, `instance-discrimination-npid` and `w-mse` were settled with a look at two of "
    "the seeds."
)
THROUGHPUT = "SimCLR, ResNet-18 with the CIFAR stem, bf16, two views made on the GPU: `nearfar fit` beside a bare loop in the same run."
LOSSES_GPU = (
    "bf16, unit vectors, forward and backward. The share of the GEMM rate, sustained and measured in the same run, counts the matrix "
    "products nobody can avoid. The gradient error is against float64; packages that normalise vectors once more have another gradient."
)
LOSSES_CPU = "fp32, d = 128, forward and backward; time and memory over plain torch's in the same run."
CHUNKS = "SimCLR, ResNet-18 with group norm, bf16: peak memory of the GPU; the loss does not depend on how the batch is cut."
JPEGS = "224 to 500 pixels a side, two views of 224 pixels: reading, decoding and cropping, beside a bare Pillow loop in the same run."


def _section(title: str, script: str, text: str, body: str) -> list[str]:
    return [f"## {title}", "", f"{text} `python {script}`", "", body, ""]


def _digits(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    columns = {"few_labels": "5 labels a class", "linear": "all labels", "knn": "kNN"}
    names = sorted({r["recipe"] for r in found["rows"]})
    of = lambda name, kind, c: [
        100 * x[c] for r in found["rows"] if r["recipe"] == name for x in r["results"] if x["representation"] == kind
    ]
    lines = [[f"`{name}`", *(spread(of(name, "trained encoder", c)) for c in columns)] for name in names]
    lines += [
        [kind, *(spread(of("simclr", kind, c)) for c in columns)] for kind in ("untrained encoder", "raw pixels", "raw pixels, scaled")
    ]
    return table(["recipe", *columns.values()], lines)


def _throughput(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    lines = [
        [str(r["batch"]), "compiled" if r["compile"] else "as it is", f"{r['fit']:,}", f"{r['bare']:,}", f"{r['ratio']:.3f}"]
        for r in found["results"]
    ]
    return table([f"batch ({found['machine']['gpu']})", "encoder", "`nearfar fit`", "bare loop", "ratio"], lines)


def _losses_gpu(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    lines = []
    for r in found["results"]:
        again = "lightly" in r["implementation"] or "sentence-transformers" in r["implementation"]
        error = "–" if again else f"{r['gradient_error']:.0e}"
        numbers = [f"{r['ms']:.2f}", f"{r['gib']:.2f}", f"{r['percent_of_gemm']:.0f} %", error]
        lines.append([r["loss"], f"{r['n']:,}", str(r["d"]), _bold(r), *numbers])
    head = [
        f"loss ({found['machine']['gpu']}, {found['gemm_tflops']:.0f} TFLOP/s)",
        "N",
        "d",
        "by",
        "ms",
        "GiB",
        "of GEMM",
        "gradient error",
    ]
    return table(head, lines)


def _losses_cpu(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    lines = []
    for r in found["results"]:
        numbers = [f"{r['ms']:.2f}", f"{r['of_plain']:.2f}", f"{r['mb']:.0f}", f"{r['mb_of_plain']:.2f}"]
        lines.append([r["loss"], str(r["n"]), str(r["threads"]), _bold(r), *numbers])
    return table(["loss", "N", "threads", "by", "ms", "of plain", "MB", "of plain"], lines)


def _bold(row: dict[str, Any]) -> str:
    return f"**{row['implementation']}**" if row["implementation"] == "nearfar" else row["implementation"]


def _chunks(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    lines = [
        [f"{r['batch']:,}", str(r["chunk"] or "whole"), f"{r['peak_gib']:.1f}", f"{r['loss']:.5f}", f"{r['seconds_a_step']:.2f}"]
        for r in found["results"]
    ]
    return table([f"batch ({found['machine']['gpu']})", "chunk", "GiB", "loss, third step", "seconds a step"], lines)


def _jpegs(found: dict[str, Any] | None, table: Table) -> str:
    if found is None:
        return NOTHING
    lines = [[name, f"{r['images_per_second']:.0f}", f"{r['ratio']:.2f}"] for name, r in found["results"].items()]
    return table(["way", "images/s", "of Pillow, two windows"], lines)
