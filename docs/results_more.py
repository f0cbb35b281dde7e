"""Sections of docs/results.md beyond vision: graphs, the index, the server, the explorer, diagnosis."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from nearfar import recipes

Found = dict[str, Any]
Table = Callable[[list[str], list[list[str]]], str]
NOTHING = "_not measured yet_"


def published(name: str) -> str:
    """The first number that a recipe's paper reports."""
    return f"{next(iter(recipes.load_method(name).reported.values()))[0]:.1f}"


def percent(value: float, std: float | None = None) -> str:
    return f"{100 * value:.1f}" + (f" ± {100 * std:.1f}" if std is not None else "")


def spread(values: list[float]) -> str:
    """Return the mean, with the standard deviation if there are several values."""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def nodes(found: Found, table: Table) -> str:
    rows = [[name, percent(row["test"]), "–", ""] for name, row in found["floors"].items()]
    for name, of in found["test accuracy"].items():
        cells = [[percent(of[who]["mean"], of[who]["std"]), str(of[who]["runs"])] for who in ("untrained", "trained")]
        rows += [[f"`{name}`, untrained", *cells[0], ""], [f"**`{name}`**", *cells[1], published(name)]]
    return table(["Cora, public split", "test accuracy", "runs", "published"], rows)


def small_graphs(found: Found, table: Table) -> str:
    rows = []
    for name, of in found["sets"].items():
        cells = [percent(x["mean"], x["std"]) for x in (of["accuracy"]["untrained"], of["accuracy"]["infograph"])]
        floor = max(of["floors"], key=of["floors"].__getitem__)
        rows.append([name, str(len(of["rows"])), f"{percent(of['floors'][floor])} ({floor})", *cells])
    return table(["set", "seeds", "best count", "untrained GIN", "InfoGraph"], rows)


def triples(found: Found, table: Table) -> str:
    rows = []
    for name, row in found.get("floors", {}).items():
        if isinstance(row, dict) and "hits10" in row:
            rows.append([name, percent(row["hits10"]), f"{row['mrr']:.3f}", "–"])
    quality = found["quality"]
    of = lambda what: [r[what] for r in quality]
    hits = percent(statistics.mean(of("hits10")), statistics.stdev(of("hits10")) if len(quality) > 1 else None)
    rows.append(["**TransE**", hits, f"{statistics.mean(of('mrr')):.3f}", str(len(quality))])
    rows.append(["published", published("transe"), "–", "–"])
    speed = found["speed"]["median"]
    faster = f"{speed['wall']:.1f} by the clock, {speed['cpu']:.1f} by CPU time"
    after = f"\n\nTriples a second over PyKEEN's, one thread, the two taking turns: {faster}."
    return table(["WN18, filtered, both sides", "hits@10", "MRR", "seeds"], rows) + after


def walks(found: Found, table: Table) -> str:
    rows = [
        [name, percent(row["macro"]), percent(row["micro"]), "–"]
        for name, row in found.get("floors", {}).items()
        if isinstance(row, dict) and "macro" in row
    ]
    runs = found.get("runs", [])
    if runs:
        of = lambda what: [r[what] for r in runs]
        cells = [percent(statistics.mean(of(w)), statistics.stdev(of(w)) if len(runs) > 1 else None) for w in ("macro", "micro")]
        rows.append(["**node2vec**", *cells, str(len(runs))])
    return table(
        ["BlogCatalog, half of the labels", "macro-F1", "micro-F1", "seeds"], [*rows, ["published", published("node2vec"), "–", "–"]]
    )


def index(found: Found, table: Table) -> str:
    rows = [
        [
            f"{r['kind']}, {r['n']:,} × {r['d']}, seed {r['seed']}", f"{r['recall']:.4f}", f"{r['raw_recall']:.4f}",
            f"{r['queries_per_s']:,.0f}", f"{r['queries_per_s'] / r['raw_queries_per_s']:.2f}",
        ]
        for r in found["rows"]
    ]  # fmt: skip
    return table([f"index ({found['faiss_threads']} thread)", "recall@10", "FAISS's own", "queries/s", "over FAISS's own"], rows)


def served(found: Found, table: Table) -> str:
    load = found["load"]
    rows = [
        ["batched search over HTTP, over raw FAISS (100,000 × 128)", f"{found['index']['ratio']:.2f}"],
        [f"{load['clients']} clients for {load['seconds']:.0f} s: requests answered", f"{load['answered']:,}"],
        ["of them lost / other than the serial answer", f"{load['lost']} / {load['different']}"],
        ["median and 99th percentile, ms", f"{load['milliseconds']['p50']:.0f} / {load['milliseconds']['p99']:.0f}"],
    ]
    return table(["server", ""], rows)


def explorer(found: Found, table: Table) -> str:
    zoom = found["zoom_redraw_ms"]
    rows = [
        [f"{found['points']:,} points: redraw after a zoom, median, ms", f"{zoom['median']:.0f}"],
        ["95th percentile", f"{zoom['p95']:.0f}"],
    ]
    return table(["map, headless Chromium, software GL", ""], rows)


def diagnosis(found: Found, table: Table) -> str:
    s = found["summary"]
    rows = [
        ["healthy", str(s["healthy runs"]), f"{s['false alarms']} false alarms"],
        ["broken on purpose", str(s["broken runs"]), f"{s['misses']} missed"],
    ]
    return table(["runs", "", ""], rows)


def choice(found: Found, table: Table) -> str:
    rows = [
        [name, f"{s['variants']['mean']:.0f}", f"{s['spearman few_labels']['mean']:.2f}", f"{s['kendall few_labels']['mean']:.2f}"]
        for name, s in found["summary"].items()
    ]
    return table(["ranking without labels against 5 labels a class", "variants", "Spearman", "Kendall"], rows)


SECTIONS = [
    (
        "Nodes of a graph: DGI, MVGRL",
        "benchmarks/nodes.py",
        "nodes",
        "Frozen embeddings, logistic regression, its penalty chosen on validation nodes; so was the length of MVGRL's runs. Its published "
        "number has not been reached by others' re-runs either (`nearfar card mvgrl`).",
        nodes,
    ),
    (
        "Small graphs: InfoGraph",
        "benchmarks/infograph.py",
        "infograph",
        "Ten folds of the files, SVM, C by inner folds; last step.",
        small_graphs,
    ),
    (
        "Knowledge graphs: TransE",
        "benchmarks/transe.py",
        "transe",
        "Known triples of all splits left out, ties shared; last epoch.",
        triples,
    ),
    ("Walks: node2vec", "benchmarks/node2vec.py", "node2vec", "One-vs-rest logistic regression on ten draws of half of the nodes.", walks),
    (
        "Index",
        "benchmarks/index.py",
        "index",
        "Clustered vectors; recall against exact search, FAISS alone beside it in the same run.",
        index,
    ),
    ("Server", "benchmarks/serve.py", "serve", "A real process on loopback.", served),
    ("Explorer", "benchmarks/explorer.py", "explorer", "Plotly's scattergl on two cores.", explorer),
    (
        "Diagnosis",
        "benchmarks/diagnose.py",
        "diagnose",
        "Trainings on digits and docstrings, healthy or broken in one way, of seeds the thresholds were not set on.",
        diagnosis,
    ),
    (
        "Choosing without labels",
        "benchmarks/choose.py",
        "choose",
        "Stored runs settled the score, which flatters itself there; fresh seeds had no part in it.",
        choice,
    ),
]
"""Title, script, result file, protocol, what makes the table."""
