"""Put measured numbers into README and docs.

    python docs/generate.py           write
    python docs/generate.py --check   only say what is out of date (exit code 1)

Tables stand between `<!-- table: NAME -->` and `<!-- end -->` in README.md; docs/methods.md and docs/status.md are written whole. All
of it comes from benchmarks/results/*.json, from the recipes' files and from the tests.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from claims_page import claims_pages
from losses_page import gradients_figure, losses_page
from results_page import results_page
from status import gain, status
from stored_rows_section import stored_rows

from nearfar import recipes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def result(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def markdown(header: list[str], rows: list[list[str]]) -> str:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(header), line(["---"] + ["--:"] * (len(header) - 1)), *map(line, rows)])


def spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * deviation:.1f}"


def accuracies(found: dict[str, Any], recipe: str, columns: dict[str, str], trained: str) -> list[list[str]]:
    """One line a representation: mean and deviation over the seeds, the best mean in bold."""
    runs = [r["results"] for r in found["rows"] if r["recipe"] == recipe]
    names = [r["representation"] for r in runs[0]]
    means = {c: [statistics.mean(run[i][c] for run in runs) for i in range(len(names))] for c in columns}
    lines = []
    for i, name in enumerate(names):
        cells = [spread([run[i][c] for run in runs]) for c in columns]
        cells = [f"**{cell}**" if means[c][i] == max(means[c]) else cell for c, cell in zip(columns, cells, strict=True)]
        lines.append([trained if name == "trained encoder" else name, *cells])
    return lines


def digits_table() -> str:
    found = result("digits")
    if found is None:
        return "_not measured yet_"
    columns = {"few_labels": "5 labels a class", "linear": "all labels", "knn": "kNN"}
    seconds = statistics.mean(r["seconds"] for r in found["rows"] if r["recipe"] == "simclr")
    threads = found["rows"][0]["machine"]["threads"]
    ours = f"**SimCLR**, {seconds:.0f} s on {threads} thread{'s' if threads > 1 else ''}"
    return markdown(["scikit-learn's digits", *columns.values()], accuracies(found, "simclr", columns, ours))


def methods_table() -> str:
    """The methods by what they learn from; each name leads to its section of docs/methods.md."""
    by_modality: dict[str, list[str]] = {}
    for name in recipes.list_methods():
        card = recipes.load_method(name).recipe_class.card
        by_modality.setdefault(card.modality, []).append(f"[`{name}`](docs/methods.md#{_anchor(f'{card.title} ({name})')})")
    order = sorted(by_modality, key=lambda m: (list(MODALITIES).index(m) if m in MODALITIES else 99, m))
    return markdown(["data", "methods"], [[MODALITIES.get(m, m), ", ".join(by_modality[m])] for m in order]).replace("--:", "---")


MODALITIES = {
    "image": "images", "image-text": "images with captions", "text": "texts", "words": "words", "audio": "sounds",
    "frames": "frames of games", "nodes": "nodes of a graph", "graphs": "small graphs", "walks": "networks", "triples": "knowledge graphs",
    "table": "tables of numbers",
}  # fmt: skip
"""In the order of the table."""


def _anchor(title: str) -> str:
    """As GitHub and mkdocs make it of a heading."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-")


def measured_table() -> str:
    lines = []
    if digits := result("digits"):
        lines.append(_digits_line(digits))
    if cifar := result("cifar_cpu"):
        lines += [_cifar_line(cifar, column, title) for column, title in (("linear", "linear probe"), ("knn", "kNN, k = 200"))]
    if views := result("views"):
        ratios = ", ".join(f"{r['ratio']:.1f}× ({r['threads']} thread{'s' if r['threads'] > 1 else ''})" for r in views["results"])
        lines.append(["SimCLR's views, 256 × 3 × 32 × 32, CPU, against kornia", ratios, "`benchmarks/views.py`"])
    if loop := result("loop"):
        lines.append(["the loop's own cost a step, beyond model and views", f"{loop['own_ms']:.2f} ms", "`benchmarks/loop.py`"])
    lines += _gpu_lines()
    return markdown(["what", "result", "script"], lines) if lines else "_not measured yet_"


def _gpu_lines() -> list[list[str]]:
    lines = []
    for path in sorted((RESULTS / "cifar").glob("*-0.json")):
        row = json.loads(path.read_text())
        ours = next(x for x in row["results"] if not x["baseline"])
        where = f"200 epochs in {row['seconds'] / 60:.1f} min on one {row['machine']['gpu']}"
        what = f"`{row['method']}` on CIFAR-10, ResNet-18, {where}, seed 0: kNN / linear"
        lines.append([what, f"{100 * ours['knn']:.1f} / {100 * ours['linear']:.1f}", "`benchmarks/cifar.py`"])
    if speed := result("throughput"):
        best = max(speed["results"], key=lambda r: r["fit"])
        where = f"ResNet-18, bf16, batch {best['batch']}, one {speed['machine']['gpu']}"
        what = f"SimCLR, {where}: images/s of `nearfar fit`, share of a bare loop"
        lines.append([what, f"{best['fit']:,}, {100 * best['ratio']:.1f} %", "`benchmarks/throughput.py`"])
    if losses := result("losses_gpu"):
        clip = {r["implementation"]: r for r in losses["results"] if (r["loss"], r["n"], r["d"]) == ("CLIP", 16_384, 512)}
        shown = ", ".join(
            f"{name} {clip[name]['ms']:.1f} ms {clip[name]['gib']:.1f} GiB" for name in ("nearfar", "torch.compile", "plain torch")
        )
        lines.append(
            [
                f"CLIP's loss, 16,384 pairs, d = 512, bf16, forward and backward, one {losses['machine']['gpu']}",
                shown,
                "`benchmarks/losses.py`",
            ]
        )
    return lines


def _against(rows: list[dict[str, Any]], column: str) -> str:
    ours = [next(x[column] for x in r["results"] if not x["baseline"]) for r in rows]
    floor = [max(x[column] for x in r["results"] if x["baseline"]) for r in rows]
    short = "" if statistics.mean(ours) > statistics.mean(floor) else " (short)"
    return f"{spread(ours)} against {spread(floor)}{short}"


def _digits_line(found: dict[str, Any]) -> list[str]:
    gains = {name: gain(found, name, "few_labels") for name in {r["recipe"] for r in found["rows"]}}
    low, high = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    seeds = len({r["seed"] for r in found["rows"]})
    what = f"{len(gains)} vision recipes on digits, 5 labels a class, points above the best baseline, {seeds} seeds"
    return [what, f"{gains[low]:.1f} (`{low}`) to {gains[high]:.1f} (`{high}`)", "`benchmarks/digits.py`"]


def _cifar_line(found: dict[str, Any], column: str, title: str) -> list[str]:
    rows = found["rows"]
    minutes = statistics.mean(r["seconds"] for r in rows) / 60
    seeds = f"{len(rows)} seed{'s' if len(rows) > 1 else ' only'}"
    where = f"{found['settings']['steps']} steps, {minutes:.0f} min on {rows[0]['machine']['cores']} busy cores"
    what = f"`simclr` on CIFAR-10, small ConvNet, {where}, {title}, {seeds}"
    return [what, _against(rows, column), "`benchmarks/cifar_cpu.py`"]


def methods_page() -> str:
    parts = ["# Methods", "", "Made from the recipes' files by `docs/generate.py`.", ""]
    for name in recipes.list_methods():
        m = recipes.load_method(name)
        text = sys.modules[m.recipe_class.__module__].__doc__ or ""
        parts += [f"## {m.recipe_class.card.title} (`{name}`)", "", text.strip(), "", f"Published settings: `{_changed(m.paper)}`", ""]
        parts += [f"- {what}: {number} ({source})" for what, (number, source) in m.reported.items()] + [""]
    return "\n".join(parts).rstrip() + "\n"


def _changed(preset: tuple[Any, Any]) -> str:
    """What a preset sets, without the defaults."""
    import dataclasses

    given = [(f.name, getattr(part, f.name)) for part in preset for f in dataclasses.fields(part) if getattr(part, f.name) != f.default]
    return ", ".join(f"{k}={v}" for k, v in given)


def readme() -> str:
    text = (ROOT / "README.md").read_text()
    for name, make in {"digits": digits_table, "methods": methods_table, "measured": measured_table}.items():
        place = re.search(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
        assert place, f"README.md has no place for the table {name!r}"
        text = f"{text[: place.start(1)]}{make()}\n{text[place.end(1) :]}"
    return text


def main() -> int:
    pages = {"README.md": readme(), "docs/methods.md": methods_page(), "docs/status.md": status(ROOT, result, stored_rows())}
    pages |= {"docs/results.md": results_page(ROOT, result, markdown)}
    pages |= {"docs/losses.md": losses_page(), "docs/losses.svg": gradients_figure()}
    pages |= claims_pages(ROOT, markdown, result("digits"))
    stale = [name for name, text in pages.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(f"{name} is out of date: run python docs/generate.py" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(pages[name])
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
