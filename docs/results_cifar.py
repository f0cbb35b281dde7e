"""Sections of docs/results.md on CIFAR-10: every stored row, and MoCo as in its authors' demonstration."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cifar_rows import changed_settings, is_current
from results_more import NOTHING, Found, Table, spread

ENCODER = "trained encoder"
HEAD = "trained encoder and head"
BANK = "trained encoder and head, neighbours in the bank"
SHORT_NAMES = {ENCODER: "encoder", HEAD: "head", BANK: "bank"}
"""What kNN compares, as named in stored rows and in the table."""


@dataclass(frozen=True)
class Published:
    """Published kNN accuracy after 200 epochs, in percent, and the representation it is measured on."""

    accuracy: float
    source: str
    representation: str = ENCODER


PUBLISHED = {
    "simclr": Published(84.7, "lightly"),
    "byol": Published(86.9, "lightly"),
    "moco-v2": Published(83.8, "lightly"),
    "barlow-twins": Published(84.2, "lightly"),
    "swav": Published(81.2, "lightly"),
    "instance-discrimination-npid": Published(80.8, "Wu et al. 2018", BANK),
}
DEMO_PUBLISHED = 85.3
"""kNN accuracy of the MoCo authors' demonstration: 200 epochs, symmetric loss, measured on head outputs."""

CIFAR = (
    "kNN (k = 200, tau = 0.1) and a linear probe on the 10,000 test images after the last epoch. No epoch "
    "and no setting was chosen on test images. kNN compares encoder outputs, and for NPID also head "
    "outputs. *bank*: head outputs of test images against the training vectors in the memory bank. A "
    "published number is compared with the same representation: lightly measures the encoder (batch 128, "
    "best epoch on the test images), Wu et al. search the bank (section 3.4)."
)
DEMO = (
    "MoCo with the settings of its authors' demonstration on CIFAR-10 (colab/moco_cifar10_demo.ipynb, "
    "symmetric loss): linear head, crops from 8 % of the image on, no warm-up. The demonstration measures "
    "kNN on the 128 outputs of the head. It adds the two losses of the symmetric form, and nearfar takes "
    "their mean: *sum* has twice its learning rate and half its weight decay, which is the same "
    "training; *mean* keeps both. Unlike the demonstration: bf16, images not standardized per channel, "
    "one learning rate a step instead of an epoch."
)
NOTES = (
    (
        "instance-discrimination-npid",
        "negatives",
        None,
        "exact softmax over the whole bank, no sampled negatives",
    ),
    ("swav", "small_crops", 0, "two views of full size, no multi-crop"),
)
"""Method, stored setting, its value, and what that value means."""
HEADER = [
    "method",
    "seeds",
    "batch, learning rate",
    "kNN",
    "published kNN",
    "linear",
    "untrained kNN / linear",
    "minutes",
]


def cifar_rows(root: Path) -> list[dict[str, Any]]:
    """Return all stored rows."""
    return [json.loads(path.read_text()) for path in sorted((root / "benchmarks" / "results" / "cifar").glob("*.json"))]


def cifar(rows: list[dict[str, Any]], table: Table) -> str:
    """Return the table with a line for each method, and remarks on the settings behind it."""
    if not rows:
        return NOTHING
    methods = sorted({row["method"] for row in rows})
    lines = [_line(name, [row for row in rows if row["method"] == name]) for name in methods]
    pixels = [x for row in rows for x in row["results"] if x["representation"] == "raw pixels"]
    lines += [["raw pixels", "–", "–", f"{100 * x['knn']:.1f}", "–", f"{100 * x['linear']:.1f}", "–", "–"] for x in pixels]
    remarks = [*_notes(rows), *_earlier_settings(rows), *_moco(rows)]
    return table(HEADER, lines) + "\n\n" + "\n".join(f"- {remark}" for remark in remarks)


def _line(name: str, rows: list[dict[str, Any]]) -> list[str]:
    knn = spread(values(rows, ENCODER, "knn"))
    others = [f"{SHORT_NAMES[kind]} {spread(values(rows, kind, 'knn'))}" for kind in (HEAD, BANK) if values(rows, kind, "knn")]
    knn += f" ({', '.join(others)})" if others else ""
    untrained = " / ".join(spread(values(rows, "untrained encoder", column)) for column in ("knn", "linear"))
    settings = "; ".join(sorted({f"{row['train_config']['batch_size']}, {row['train_config']['lr']:g}" for row in rows}))
    settings += "" if all(map(is_current, rows)) else " (earlier settings)"
    seeds = ", ".join(str(row["seed"]) for row in rows)
    minutes = f"{statistics.mean(row['seconds'] for row in rows) / 60:.1f}"
    return [
        f"`{name}`",
        seeds,
        settings,
        knn,
        _published(name, rows),
        spread(values(rows, ENCODER, "linear")),
        untrained,
        minutes,
    ]


def values(rows: list[dict[str, Any]], representation: str, column: str) -> list[float]:
    """Return one measure of one representation for each row that has it, in percent."""
    found = [x for row in rows for x in row["results"] if x["representation"] == representation]
    return [100 * x[column] for x in found]


def _published(name: str, rows: list[dict[str, Any]]) -> str:
    """Return the published number, and whether the worst seed falls short of it."""
    if name not in PUBLISHED:
        return "–"
    published = PUBLISHED[name]
    reached = values(rows, published.representation, "knn")
    verdict = ", not measured" if not reached else ", **short**" if min(reached) < published.accuracy else ""
    return f"{published.accuracy} ({published.source}, {SHORT_NAMES[published.representation]}){verdict}"


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the stored settings say of each method that has a note."""
    found = []
    for method, setting, value, meaning in NOTES:
        stored = [row["hyperparameters"].get(setting, "not stored") for row in rows if row["method"] == method]
        if stored and all(x == value for x in stored):
            found.append(f"`{method}`: {meaning} (`{setting}={value}`).")
    return found


def _earlier_settings(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each row whose settings are not those of the script."""
    found = []
    for row in rows:
        if not is_current(row):
            pairs = ", ".join(f"`{name}` {old} instead of {new}" for name, (old, new) in changed_settings(row).items())
            found.append(f"`{row['method']}`, seed {row['seed']}: measured before the script's settings changed: {pairs}.")
    return found


def _moco(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the `moco-v2` row can be compared with."""
    reached = values([row for row in rows if row["method"] == "moco-v2"], ENCODER, "knn")
    if not reached:
        return []
    difference = statistics.mean(reached) - PUBLISHED["moco-v2"].accuracy
    comparison = f"{abs(difference):.1f} points {'less' if difference < 0 else 'more'}"
    return [
        f"`moco-v2` scores {comparison} than lightly's number for the encoder. The {DEMO_PUBLISHED} of the authors' "
        "demonstration is not comparable with this row: it is measured on the 128 outputs of a linear head, and `moco-v2` has "
        "an MLP head. The next section has the script for the demonstration's setting."
    ]


def demo(found: Found, table: Table) -> str:
    """Return the table of runs in the setting of MoCo's demonstration."""
    lines = []
    for row in found["rows"]:
        measured = [values([row], kind, column) for kind, column in ((HEAD, "knn"), (ENCODER, "knn"), (ENCODER, "linear"))]
        lines.append([row["loss"], str(row["seed"]), *(spread(x) for x in measured), f"{row['seconds'] / 60:.1f}"])
    lines.append(["published", "–", str(DEMO_PUBLISHED), "–", "–", "–"])
    return table(["the two losses", "seed", "kNN, head", "kNN, encoder", "linear, encoder", "minutes"], lines)


def demo_knn(found: Found) -> float | None:
    """Return the kNN accuracy on head outputs of the run that adds both losses with seed 0, in percent."""
    rows = [row for row in found["rows"] if (row["loss"], row["seed"]) == ("sum", 0)]
    return values(rows, HEAD, "knn")[0] if rows else None
