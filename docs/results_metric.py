"""Section of docs/results.md on metric learning: characters of alphabets that were never seen."""

from __future__ import annotations

from statistics import mean, stdev

from results_more import Found, Table, percent

METRICS = {"recall": "recall@1", "one_shot": "20-way 1-shot", "eer": "EER"}
SUMMED = {"recall": "recall@1", "one_shot": "20-way 1-shot", "verified": "1 − EER"}
SUPCON = "gain over supcon"
HEADS = ("trained, with its head", "trained, without its head")


def omniglot(found: Found, table: Table) -> str:
    rows, methods = found["rows"], sorted({r["method"] for r in found["rows"]})
    floors = [who for who in rows[0]["results"] if not who.startswith("trained")]
    lines = [[who, "–", *_cells(rows, who)] for who in floors]
    for name in methods:
        mine = [r for r in rows if r["method"] == name]
        lines.append([f"`{name}`", str(len(mine)), *_cells(mine, "trained")])
        lines += [[f"`{name}`{who.removeprefix('trained')}", "", *_cells(mine, who)] for who in HEADS if who in mine[0]["results"]]
    seconds = mean(r["seconds"] for r in rows)
    after = f"\n\nEvery training encoded {found['pictures']:,} pictures, in {seconds:.0f} s of one thread."
    return table(["", "seeds", *METRICS.values()], lines) + after + _gains(found["summary"], table)


def _cells(rows: list[Found], who: str) -> list[str]:
    of = lambda metric: list({r["seed"]: r["results"][who][metric] for r in rows}.values())  # floors are the same beside every method
    return [percent(mean(of(m)), stdev(of(m)) if len(of(m)) > 1 else None) for m in METRICS]


def _gains(summary: list[Found], table: Table) -> str:
    lines = []
    for r in summary:
        gains = {who.removeprefix("gain over "): value for who, value in r.items() if who.startswith("gain over ") and who != SUPCON}
        floor = min(gains, key=gains.__getitem__)
        beside = "–" if r["method"] == "supcon" else _points(r[SUPCON], r["standard error, supcon"])
        verdict = "**open**" if r["seeds"] < 3 else "**short**" if r["short"] else "above"
        over = f"{_points(gains[floor], r[f'standard error, {floor}'])} ({floor})"
        lines.append([f"`{r['method']}`", SUMMED[r["metric"]], str(r["seeds"]), over, verdict, beside])
    head = ["", "", "seeds", "over the best floor", "", "over `supcon`"]
    return "\n\nGains in points, with the paired standard error over seeds:\n\n" + table(head, lines)


def _points(gain: float | None, error: float | None) -> str:
    return "–" if gain is None else f"{100 * gain:+.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


SECTIONS = (
    (
        "Characters of unseen alphabets: metric learning",
        "benchmarks/omniglot.py",
        "omniglot",
        "Omniglot at 28 pixels, trained on five alphabets, tested on three others and on the authors' 20 one-shot runs. Each drawing looks "
        "for its nearest among 2,119 others; equal error rate over 20,000 pairs. Vectors are compared as the method's loss compares them. "
        "Beside the metric methods, with as many encoded pictures: `supcon`, and `simclr`, which sees no labels.",
        omniglot,
    ),
)
