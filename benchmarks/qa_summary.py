"""What benchmarks/qa.py measured, put together: means over seeds, and paired bootstraps against the floors."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from nearfar.core import RandomKey
from nearfar.data.questions.dataset import Questions
from nearfar.data.questions.load import load_questions
from nearfar.evaluate.retrieval import paired_bootstrap

VALIDATION = 4
"""Articles that choose the weight of the hybrid."""
AGAINST = ("BM25", "encoder before training", "BM25 + encoder before training, half and half")
"""Floors that every other row is compared with."""


def halves(questions: Questions, seed: int, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of questions to train on, to choose by, to test on; articles are whole."""
    articles = np.unique(questions.question_documents)
    order = articles[RandomKey(seed)("halves").permutation(len(articles))]
    test = order[fold::2]
    rest = order[1 - fold :: 2]
    parts = (rest[VALIDATION:], rest[:VALIDATION], test)
    return tuple(np.flatnonzero(np.isin(questions.question_documents, part)) for part in parts)  # type: ignore[return-value]


def numbers(text: str) -> np.ndarray:
    return np.array([float(v) for v in text.split()])


def measures(rank: np.ndarray) -> dict[str, np.ndarray]:
    found = rank > 0
    measured = {f"top-{k}": (found & (rank <= k)).astype(float) for k in (1, 5, 20)}
    return measured | {"MRR": np.where(found, 1 / np.maximum(rank, 1), 0.0)}


def averaged(questions: Questions, runs: list[dict[str, Any]], title: str) -> tuple[np.ndarray, np.ndarray]:
    """For each question its mean MRR and top-1 over the runs that tested it (nan: none), for one retriever."""
    total = np.full((len(runs), 2, len(questions)), np.nan)
    for i, run in enumerate(runs):
        test = halves(questions, run["seed"], run["fold"])[2]
        measured = measures(numbers(run["ranks"][title]))
        total[i, 0, test], total[i, 1, test] = measured["MRR"], measured["top-1"]
    seen = ~np.isnan(total).all(0)[0]
    mean = np.full((2, len(questions)), np.nan)
    mean[:, seen] = np.nanmean(total[:, :, seen], 0)
    return mean[0], mean[1]


def spread(values: list[float]) -> dict[str, Any]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else None, "runs": values}


def summarise(stored: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    base, found = stored.get("floors", {}), {}
    if "xquad" in base:
        found["xquad"] = summarise_xquad(base["xquad"], base.get("random", {}), list(stored.get("xquad", {}).values()), args)
    if "trecqa" in base:
        found["trecqa"] = summarise_trecqa(base["trecqa"], base["trecqa, judged"], list(stored.get("trecqa", {}).values()), args)
    runs = list(stored.get("reader", {}).values())
    titles = runs[0]["answers"] if runs else ()
    found["reader"] = {t: {k: spread([float(numbers(run["answers"][t][k]).mean()) for run in runs]) for k in ("EM", "F1")} for t in titles}
    return found


def summarise_xquad(floors: dict[str, str], random: dict[str, str], runs: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    rng_key, questions = RandomKey(0)("qa"), load_questions(args.xquad)
    floor = {title: measures(numbers(r)) for title, r in (floors | random).items()}
    rows: dict[str, Any] = {title: means(measured) for title, measured in floor.items()}
    compared = {title: (m["MRR"], m["top-1"]) for title, m in floor.items() if title.startswith("BM25 +")}
    for title in runs[0]["ranks"] if runs else ():
        per_run = [means(measures(numbers(run["ranks"][title]))) for run in runs]
        rows[title] = {k: spread([m[k] for m in per_run]) for k in per_run[0]}
        compared[title] = averaged(questions, runs, title)
    differences = {}
    for title, measured in compared.items():
        seen = ~np.isnan(measured[0])
        group = torch.from_numpy(questions.question_documents[seen])
        for other in [o for o in AGAINST if o != title]:
            for name, ours in zip(("MRR", "top-1"), measured, strict=True):
                pair = (torch.from_numpy(x[seen]) for x in (ours, floor[other][name]))
                found = asdict(paired_bootstrap(*pair, rng_key, groups=group))
                differences.setdefault(f"{title} - {other}", {"questions": int(seen.sum())})[name] = found
    return {"rows": rows, "weights": [run["weight"] for run in runs], "differences": differences}


def summarise_trecqa(
    floors: dict[str, str], judged: dict[str, dict[str, str]], runs: list[dict[str, Any]], args: argparse.Namespace
) -> dict[str, Any]:
    rng_key = RandomKey(0)("qa")
    answerable = np.array([bool(g) for g in load_questions(args.trecqa / "test.csv").gold])
    overall: dict[str, Any] = {t: means(measures(numbers(r)[answerable])) for t, r in floors.items()}
    within = {t: {k: numbers(v) for k, v in m.items()} for t, m in judged.items()}
    rows: dict[str, Any] = {t: means(m) for t, m in within.items()}
    for title in runs[0]["judged"] if runs else ():
        each = [{k: numbers(v) for k, v in run["judged"][title].items()} for run in runs]
        rows[title] = {k: spread([float(m[k].mean()) for m in each]) for k in each[0]}
        within[title] = {k: np.mean([m[k] for m in each], 0) for k in each[0]}
        over = [means(measures(numbers(run["ranks"][title])[answerable])) for run in runs]
        overall[title] = {k: spread([m[k] for m in over]) for k in over[0]}
    differences = {}
    for title, ours in within.items():
        for other in [o for o in AGAINST if o != title]:
            pairs = {k: (torch.from_numpy(ours[k]), torch.from_numpy(within[other][k])) for k in ours}
            differences[f"{title} - {other}"] = {k: asdict(paired_bootstrap(*pair, rng_key)) for k, pair in pairs.items()}
    return {"judged sentences": rows, "all sentences": overall, "differences, judged sentences": differences}


def means(measured: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in measured.items()}
