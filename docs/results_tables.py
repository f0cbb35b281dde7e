"""Section of docs/results.md on tables of numbers: SCARF next to raw features and their principal components."""

from __future__ import annotations

from results_more import Found, Table, percent

METRICS = {"few_labels": "5 labels a class", "linear": "all labels", "knn": "kNN"}
VARIANTS = {"default": "**`scarf`**", "paper": "`scarf`, published corruption and temperature"}


def tables(found: Found, table: Table) -> str:
    """Return one table with a line for each dataset and representation. The best mean of a dataset is bold."""
    lines = []
    for name in dict.fromkeys(row["table"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["table"] == name]
        lines.append([f"{name}: {rows[0]['train']:,} × {rows[0]['features']}, {rows[0]['classes']} classes", *[""] * len(METRICS)])
        lines += _lines([entry for entry in found["summary"] if entry["table"] == name])
    return table(["table: training rows × features", *METRICS.values()], lines) + "\n\n" + _verdict(found["summary"])


def _verdict(summary: list[Found]) -> str:
    """Return in how many columns the default settings score above the baselines."""
    means = {(entry["table"], entry["metric"], _title(entry)): _shown(entry) for entry in summary}
    trained = {key[:2]: value for key, value in means.items() if key[2] == VARIANTS["default"]}
    baselines = {key: value for key, value in means.items() if key[2] not in VARIANTS.values()}
    best = {pair: max(value for key, value in baselines.items() if key[:2] == pair) for pair in trained}
    over_untrained = sum(value > means[*pair, "untrained encoder"] for pair, value in trained.items())
    over_all = sum(value > best[pair] for pair, value in trained.items())
    return (
        f"Of the {len(trained)} means of {VARIANTS['default']}, {over_untrained} are above the untrained encoder and {over_all} above "
        "every baseline: raw features are hard to beat on tables."
    )


def _lines(entries: list[Found]) -> list[list[str]]:
    """Return the lines of one dataset. Baselines are the same for all settings."""
    cells = {(_title(entry), entry["metric"]): entry for entry in entries}
    best = {metric: max(_shown(entry) for (_, m), entry in cells.items() if m == metric) for metric in METRICS}
    lines = []
    for title in dict.fromkeys(title for title, _ in cells):
        of_metrics = [cells[title, metric] for metric in METRICS]
        texts = [percent(entry["mean"], entry["std"]) for entry in of_metrics]
        is_best = [_shown(entry) == best[entry["metric"]] for entry in of_metrics]
        lines.append([title, *(f"**{text}**" if bold else text for text, bold in zip(texts, is_best, strict=True))])
    return lines


def _shown(entry: Found) -> float:
    return round(100 * entry["mean"], 1)


def _title(entry: Found) -> str:
    return VARIANTS[entry["variant"]] if entry["representation"] == "trained encoder" else entry["representation"]


SECTIONS = (
    (
        "Tables of numbers: SCARF",
        "benchmarks/tables.py",
        "tables",
        "Frozen encoders, last step, mean ± standard deviation over three seeds. Bundled tables are split by the seed. The rows of "
        "`cifar10-8x8` are the pixels of 20,000 training and all test images of CIFAR-10, averaged to 8 × 8: 192 numbers. The paper "
        "fine-tunes its encoders on the labels; here they stay frozen.",
        tables,
    ),
)
