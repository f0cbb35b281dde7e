"""Section of docs/results.md on questions and passages: BM25, encoders, both together, and a reader."""

from __future__ import annotations

from typing import Any

from results_more import Found, Table

COLUMNS = ("top-1", "top-5", "top-20", "MRR")


def questions(found: Found, table: Table) -> str:
    """Return the tables, each with rows that are measured on the same questions."""
    summary = found["summary"]
    parts = [*_xquad(found, table), _differences(summary["xquad"]["differences"], table)]
    judged = summary["trecqa"]["judged sentences"]
    count = len(next(iter(found["floors"]["trecqa, judged"].values()))["MAP"].split())
    rows = [[name, _cell(row["MAP"]), _cell(row["MRR"])] for name, row in judged.items()]
    parts.append(table([f"TREC-QA, judged sentences, {count} test questions", "MAP", "MRR"], rows))
    if reader := summary.get("reader"):
        counts = _counts([run["test"] for run in found["reader"].values()])
        rows = [[name, _cell(row["EM"]), _cell(row["F1"])] for name, row in reader.items()]
        parts.append(table([f"reader, XQuAD, {counts} test questions a seed", "exact", "F1"], rows))
    return "\n\n".join(parts)


def _xquad(found: Found, table: Table) -> list[str]:
    """Return one table of rows without training and one of trained rows, which have other questions."""
    rows = found["summary"]["xquad"]["rows"]
    trained = [name for name in rows if isinstance(rows[name]["MRR"], dict)]
    everything = len(found["floors"]["xquad"]["BM25"].split())
    tables = []
    for title, names in (
        (f"XQuAD, no training, all {everything:,} questions", [name for name in rows if name not in trained]),
        (
            f"XQuAD, DPR, {_counts([run['test'] for run in found['xquad'].values()])} test questions a seed",
            trained,
        ),
    ):
        tables.append(
            table(
                [title, *COLUMNS],
                [[name, *(_cell(rows[name][column]) for column in COLUMNS)] for name in names],
            )
        )
    return tables


def _counts(counts: list[int]) -> str:
    """Return the range of several counts."""
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"


def _differences(differences: dict[str, Any], table: Table) -> str:
    """Return the differences of MRR, each measured on questions that both sides answered."""
    rows = []
    for name, found in differences.items():
        mrr = found["MRR"]
        rows.append(
            [
                name,
                f"{found['questions']:,}",
                f"{mrr['difference']:+.3f}",
                f"{mrr['low']:+.3f} to {mrr['high']:+.3f}",
            ]
        )
    return (
        "Differences of the mean reciprocal rank on the same questions, with the 95 % interval of a paired bootstrap over "
        "articles. Trained rows: all questions that at least one seed tested, averaged over these seeds.\n\n"
        + table(["XQuAD", "questions", "MRR", "95 % interval"], rows)
    )


def _cell(value: Any) -> str:
    """Return a number, or the mean of several runs with its standard deviation and their count."""
    if not isinstance(value, dict):
        return f"{value:.3f}"
    runs = value["runs"]
    return f"{value['mean']:.3f}" + (f" ± {value['std']:.3f}" if value["std"] is not None else "") + f" ({len(runs)})"


SECTIONS = (
    (
        "Questions and passages",
        "benchmarks/qa.py",
        "qa",
        "BM25, a pretrained encoder before and after training as DPR, and both together. XQuAD: every "
        "search is over all 240 paragraphs. The first two tables are measured on different questions and "
        "cannot be compared with each other; the third compares on the same questions. *half and half*: "
        "the default of `nearfar ask`. *BM25 + DPR*: its weight is chosen on four articles that are not "
        "tested.",
        questions,
    ),
)
