"""Sections of docs/results.md on language: words beside gensim, sentences beside the encoder they began from."""

from __future__ import annotations

from typing import Any

from results_more import Found, Table, percent

TRAINED = "trained encoder"
SHOWN = ("STS-B dev", "STS-B", "STS average")


def words(found: Found, table: Table) -> str:
    rows = []
    for name, floor in found["floors"].items():
        judged = {k: {"mean": floor[k]["spearman"]} for k in ("WordSim-353", "SimLex-999")}
        rows.append([name, "–", *_agreement(judged), percent(floor["analogies"]["accuracy"])])
    for method, of in found["methods"].items():
        for program in ("gensim", "nearfar"):
            speed = of[program]["words/s"]
            rows.append([
                f"{method}, {program}", f"{speed['mean']:,.0f}", *_agreement(of[program]),
                percent(of[program]["analogies"]["mean"], of[program]["analogies"]["std"]),
            ])  # fmt: skip
    settings = found["settings"]
    after = (
        f"\n\n{found['corpus']['words']:,} words, {settings['epochs']} epochs, {settings['dim']} dimensions, window {settings['window']}, "
        f"{settings['threads']} threads, {settings['seeds']} seeds."
    )
    return table(["", "words/s", "WordSim-353", "SimLex-999", "analogies"], rows) + after


def _agreement(of: dict[str, Any]) -> list[str]:
    return [percent(of[name]["mean"], of[name].get("std")) for name in ("WordSim-353", "SimLex-999")]


def sentences(found: Found, table: Table) -> str:
    """One row a method, the mean over seeds; below, what it gained over each floor on STS-B's development pairs and on average."""
    of = {(r["method"], r["metric"], r["floor"]): r for r in found["summary"]}
    methods = list(dict.fromkeys(r["method"] for r in found["summary"]))
    rows = [
        [floor, "–", *(_value(of.get((methods[0], metric, floor)), "value of the floor") for metric in SHOWN)]
        for floor in ("tf-idf", "letter trigrams", "random word vectors")
    ]
    for method in methods:
        known = {metric: next((r for r in found["summary"] if (r["method"], r["metric"]) == (method, metric)), None) for metric in SHOWN}
        seeds = next(r["seeds"] for r in found["summary"] if r["method"] == method)
        rows.append([f"**`{method}`**", str(seeds), *(_value(known[metric], "trained") for metric in SHOWN)])
    gains = [
        [f"`{r['method']}`", r["floor"], r["metric"], f"{100 * r['gain']:+.1f}", _error(r["error"]), _verdict(r)]
        for r in found["summary"]
        if r["metric"] in ("STS-B dev", "STS average")
    ]
    return (
        table(["", "seeds", *SHOWN], rows)
        + "\n\nGained by training, in points, with the standard error of the paired differences:\n\n"
        + table(["method", "over", "measure", "gain", "error", ""], gains)
    )


def trials(found: Found, table: Table) -> str:
    """Every setting that was tried, the best of a method in bold."""
    best = {r["method"]: max(x["STS-B dev"] for x in found["rows"] if x["method"] == r["method"]) for r in found["rows"]}
    rows = []
    for r in sorted(found["rows"], key=lambda r: (r["method"], -r["STS-B dev"])):
        score = percent(r["STS-B dev"])
        rows.append([f"`{r['method']}`", r["setting"], f"**{score}**" if r["STS-B dev"] == best[r["method"]] else score])
    return table(["method", "setting", "STS-B dev"], rows)


def _value(row: dict[str, Any] | None, what: str) -> str:
    return "–" if row is None else percent(row[what])


def _error(error: float | None) -> str:
    return "–" if error is None else f"± {100 * error:.1f}"


def _verdict(row: dict[str, Any]) -> str:
    return "above" if row["above"] else "**open**" if row["seeds"] < 3 else "**short**"


SECTIONS = (
    (
        "Words",
        "benchmarks/word2vec.py --corpus WIKI --judged WORDEVAL",
        "word2vec",
        "Wikipedia's sentences; the same text, vocabulary, window, width, negatives, epochs and cores as gensim, seed by seed in turns. "
        "Spearman's correlation with people's judgements; analogies: share answered. "
        "Tiles, batch and learning rate were settled with WordSim-353 in view, which flatters nearfar there; gensim has its defaults.",
        words,
    ),
    (
        "Sentences",
        "benchmarks/sentences.py --device cuda",
        "sentences",
        "`bert` is trained from scratch on Wikipedia's sentences; SimCSE, whitening and Sentence-BERT begin from it, seed by seed. STS: "
        "Spearman of cosines, protocol \"all\". Settings were chosen on STS-B's development pairs. The rows of `quick-thought` "
        "are of the first of its two encoders alone, by which a run was represented when they were measured.",
        sentences,
    ),
    (
        "Sentences: what was tried",
        "benchmarks/sentences.py --device cuda --trials",
        "sentences_trials",
        "Settings on seed 0 and STS-B's development pairs alone, from the same masked language model as above; the best was taken. "
        "What \"as it is\" means stands in benchmarks/sentences.py.",
        trials,
    ),
)  # fmt: skip
