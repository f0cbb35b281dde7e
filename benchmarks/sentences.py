"""Sentences: a masked language model of our own, trained on Wikipedia, and what contrast makes of its vectors; written for a GPU.

    python benchmarks/sentences.py --device cuda --trials [--methods simcse-unsup]     which settings: seed 0, STS-B's development pairs
    python benchmarks/sentences.py --device cuda [--seeds 0,1,2] [--methods bert,simcse-unsup] [--runs FOLDER]

Rows accumulate in benchmarks/results/sentences.json and sentences_trials.json: those that are there, with today's settings, are not run
again unless --again is given, and several processes may run at the same time. A run of `bert` is kept in --runs: the others begin from it.
Data, in $NEARFAR_DATA or ~/.cache/nearfar: wiki-en (sentences of Wikipedia, four documents in five of them), senteval (SNLI's
development and test pairs, which simcse-sup and sentence-bert learn from, and simcse-unsup where the trials prefer their sentences,
without pairs and labels, to Wikipedia's; the STS sets and the transfer tasks that all are measured on).
Protocol: `bert` is trained from scratch, last step; simcse, sentence-bert and whitening begin from that run of the same seed. STS: cosine,
Spearman, "all"; with --transfer also SentEval's tasks of that name. Floors in the same run: the masked language model's own vectors (of
the last layer, and of the first and the last, averaged) for those that begin from it, the untrained encoder, counted words, letters,
random word vectors.
Settings are chosen by trials, on STS-B's development pairs alone: the best there is taken.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from common import add, is_measured, known
from provenance import DATA, UNKNOWN, Training, agrees, provenance, training_of

import nearfar
from nearfar.core import RandomKey
from nearfar.data.text.senteval import LabeledPairs, read_snli, read_sts_benchmark
from nearfar.evaluate.lexical_baselines import build_random_word_encoder, ngram_jaccard, tf_idf_cosine
from nearfar.evaluate.senteval_transfer import measure_transfer
from nearfar.evaluate.sts import EncodeSentences, PairScorer, build_cosine_scorer, measure_sts, read_sts_sets
from nearfar.train.model import Model

WIKI, SENTEVAL = DATA / "wiki-en", DATA / "senteval"
COMMON: dict[str, Any] = {"precision": "bf16" if torch.cuda.is_available() else "fp32", "max_length": 32, "log_every": 100}
METHODS: dict[str, dict[str, Any]] = {
    "bert": {
        "encoder": "bert-mini", "vocab_size": 8192, "batch_size": 512, "epochs": 20, "lr": 1e-3, "weight_decay": 0.01, "warmup_ratio": 0.05,
    },
    "simcse-unsup": {"batch_size": 256, "epochs": 1, "lr": 1e-4, "weight_decay": 0.0, "pooling": "mean"},
    "bert-whitening": {"pooling": "mean"},
    "simcse-sup": {"batch_size": 256, "epochs": 3, "lr": 1e-4, "weight_decay": 0.0, "pooling": "mean"},
    "sentence-bert": {"batch_size": 64, "epochs": 2, "lr": 1e-4, "weight_decay": 0.01, "pooling": "mean"},
    "quick-thought": {
        "encoder": "gru", "vocab_size": 16384, "batch_size": 64, "consecutive_sentences": 16, "epochs": 2, "lr": 1e-3, "grad_clip": 1.0,
    },
}  # fmt: skip
TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    "simcse-unsup": {
        "as it is": {}, "lr 3e-4": {"lr": 3e-4}, "lr 1e-3": {"lr": 1e-3}, "lr 3e-3": {"lr": 3e-3},
        "lr 1e-3, tau 0.1": {"lr": 1e-3, "temperature": 0.1},
        "lr 3e-4, tokens erased": {"lr": 3e-4, "augmentation": "erase-tokens", "changed_share": 0.2},
        "lr 3e-4, first-last, tokens erased": {"lr": 3e-4, "pooling": "first-last", "augmentation": "erase-tokens", "changed_share": 0.2},
        "SNLI's sentences, lr 3e-4, 5 epochs": {"corpus": "SNLI", "lr": 3e-4, "epochs": 5},
        "SNLI's sentences, lr 1e-3, 10 epochs": {"corpus": "SNLI", "lr": 1e-3, "epochs": 10},
        "SNLI's sentences, lr 1e-3, 30 epochs": {"corpus": "SNLI", "lr": 1e-3, "epochs": 30},
        "SNLI's sentences, lr 1e-3, 10 epochs, first-last": {"corpus": "SNLI", "lr": 1e-3, "epochs": 10, "pooling": "first-last"},
        "SNLI's sentences, lr 1e-3, 30 epochs, first-last": {"corpus": "SNLI", "lr": 1e-3, "epochs": 30, "pooling": "first-last"},
        "SNLI's sentences, lr 2e-3, 10 epochs, first-last": {"corpus": "SNLI", "lr": 2e-3, "epochs": 10, "pooling": "first-last"},
        "SNLI's sentences, lr 1e-3, 10 epochs, first-last, dropout 0.2": {
            "corpus": "SNLI", "lr": 1e-3, "epochs": 10, "pooling": "first-last", "dropout": 0.2,
        },
        "SNLI's sentences, lr 1e-3, 10 epochs, tokens erased": {
            "corpus": "SNLI", "lr": 1e-3, "epochs": 10, "augmentation": "erase-tokens", "changed_share": 0.2,
        },
    },
    "bert-whitening": {"as it is": {}, "first-last": {"pooling": "first-last"}},
    "simcse-sup": {
        "as it is": {}, "lr 3e-5": {"lr": 3e-5}, "lr 3e-4": {"lr": 3e-4}, "lr 1e-3": {"lr": 1e-3},
        "lr 1e-3, 10 epochs": {"lr": 1e-3, "epochs": 10},
        "lr 1e-3, 10 epochs, first-last": {"lr": 1e-3, "epochs": 10, "pooling": "first-last"},
    },
    "sentence-bert": {
        "as it is": {}, "lr 3e-5": {"lr": 3e-5}, "lr 3e-4": {"lr": 3e-4},
        "triplets, lr 3e-4": {"loss_type": "triplet", "lr": 3e-4},
        "triplets, lr 1e-3": {"loss_type": "triplet", "lr": 1e-3},
        "triplets, lr 3e-4, 4 epochs, first-last": {"loss_type": "triplet", "lr": 3e-4, "epochs": 4, "pooling": "first-last"},
    },
}  # fmt: skip
"""What is tried, by a name; "corpus" is where the sentences come from."""
FROM_SCRATCH = ("bert", "quick-thought")
TRAINED, BEGAN = "trained encoder", "masked language model"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs/sentences"))
    parser.add_argument("--transfer", default="", help="SentEval's tasks, with commas between them: TREC,MRPC,SST")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--trials", action="store_true", help="measure every setting that is tried, on STS-B's development pairs")
    return parser


def main() -> None:
    args = parser().parse_args()
    for seed in map(int, "0" if args.trials else args.seeds.split(",")):
        for name in args.methods.split(","):
            if args.trials:
                for setting in TRIALS.get(name, {}):
                    trial(name, seed, setting, args)
            elif args.again or not is_measured("sentences", is_current, method=name, seed=seed):
                found = row(name, seed, args)
                show(found)
                add("sentences", found, ("method", "seed"), lambda rows: {"settings": METHODS, "summary": summary(rows)})


def row(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    began, settings = time.perf_counter(), chosen(name)
    model = train(name, seed, args.runs, args.device, settings)
    seconds = time.perf_counter() - began
    encoders = {TRAINED: model.encode} | beginnings(model) | {"untrained encoder": model.build_untrained().encode}
    encoders["random word vectors"] = build_random_word_encoder(RandomKey(seed))
    tasks = [task for task in args.transfer.split(",") if task]
    results = [measured(title, build_cosine_scorer(encode)) | transferred(encode, tasks) for title, encode in encoders.items()]
    return {
        "method": name, "seed": seed, "seconds": round(seconds, 1), "steps": model.step, "results": [*results, *counted()],
        **told(name, settings, model),
    }  # fmt: skip


def told(name: str, changes: dict[str, Any], model: Model) -> dict[str, Any]:
    """Return the provenance of a run with these changes to the method's settings."""
    settings = COMMON | METHODS[name] | changes
    return provenance(settings, model.data_fingerprint, training(name, settings))


def training(name: str, settings: dict[str, Any]) -> Training:
    """Return all settings of a run. The corpus is not a setting of the run."""
    return training_of(name, {key: value for key, value in settings.items() if key != "corpus"})


def trial(name: str, seed: int, setting: str, args: argparse.Namespace) -> None:
    """One of the settings that are tried, judged on STS-B's development pairs."""
    if not args.again and is_measured("sentences_trials", is_current, method=name, setting=setting):
        return
    model = train(name, seed, args.runs, args.device, TRIALS[name][setting])
    found = measure_sts({"dev": {"dev": read_sts_benchmark(SENTEVAL, "dev")}}, build_cosine_scorer(model.encode)).compute_correlation("dev")
    print(f"{name}, {setting}: STS-B dev {100 * found:.2f}", flush=True)
    row = {"method": name, "setting": setting, "seed": seed, "STS-B dev": found, **told(name, TRIALS[name][setting], model)}
    add("sentences_trials", row, ("method", "setting"), lambda rows: {})


def chosen(name: str) -> dict[str, Any]:
    """The settings that won; as they stand where nothing was tried."""
    rows = [r for r in known("sentences_trials") if r["method"] == name and r["setting"] in TRIALS.get(name, {})]
    return TRIALS[name][max(rows, key=lambda r: r["STS-B dev"])["setting"]] if rows else {}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row or a trial has today's settings, in any precision: that follows the machine."""
    tried = TRIALS.get(row["method"], {})
    if row.get("settings", UNKNOWN) == UNKNOWN or row.get("setting") not in (None, *tried):
        return False
    changed = tried[row["setting"]] if "setting" in row else chosen(row["method"])
    wanted = COMMON | METHODS[row["method"]] | changed | {"precision": row["settings"]["precision"]}
    return agrees(row, wanted, training(row["method"], wanted))


def train(name: str, seed: int, runs: Path, device: str, changes: dict[str, Any]) -> Model:
    """The run; those that begin from `bert` need its run of this seed, which is kept for them, and made where it is missing."""
    settings = {"seed": seed, "device": device} | COMMON | METHODS[name] | changes
    data = learned_from(name, settings.pop("corpus", "Wikipedia"), settings.get("loss_type", "softmax"))
    stored = runs / f"bert-{seed}"
    if name not in FROM_SCRATCH:
        if not stored.exists():
            train("bert", seed, runs, device, {})
        settings["init_from"] = str(stored)
    out = stored if name == "bert" else None
    return nearfar.fit(name, data=data, out=out, overwrite=True, save_every=1_000_000, **settings)


def learned_from(name: str, corpus: str, goal: str) -> Any:
    if corpus == "SNLI":  # its sentences, each once, without their pairs and labels
        parts = [read_snli(SENTEVAL, split) for split in ("dev", "test")]
        return {"text": list(dict.fromkeys(text for pairs in parts for text in (*pairs.first, *pairs.second)))}
    if name == "simcse-sup" or goal == "triplet":
        return triples([read_snli(SENTEVAL, split) for split in ("dev", "test")])
    if name == "sentence-bert":
        dev, test = (read_snli(SENTEVAL, split) for split in ("dev", "test"))
        labels = [str(label) for label in (*dev.labels, *test.labels)]
        return {"first": dev.first + test.first, "second": dev.second + test.second, "label": labels}
    return str(WIKI)


def triples(parts: list[LabeledPairs]) -> dict[str, list[str]]:
    """SNLI's premises with a hypothesis that they entail and one that contradicts them, each in the order of the file."""
    said: dict[str, dict[str, list[str]]] = {}
    for pairs in parts:
        for premise, hypothesis, label in zip(pairs.first, pairs.second, pairs.labels, strict=True):
            said.setdefault(premise, {}).setdefault(pairs.classes[label], []).append(hypothesis)
    rows = [
        (premise, yes, no)
        for premise, by in said.items()
        for yes, no in zip(by.get("entailment", []), by.get("contradiction", []), strict=False)
    ]
    return dict(zip(("anchor", "positive", "negative"), map(list, zip(*rows, strict=True)), strict=True))


def beginnings(model: Model) -> dict[str, EncodeSentences]:
    """The encoder that a run was given, pooled in two ways; nothing for a run from scratch."""
    if model.config.init_from is None:
        return {}
    found = {}
    for pool in ("mean", "first-last"):
        donor = nearfar.load(model.config.init_from, device=str(model.device))
        donor.net.encoder.configure(pool, 0.0)
        found[f"{BEGAN}, {pool}"] = donor.encode
    return found


def measured(title: str, score: PairScorer) -> dict[str, Any]:
    """STS, for whatever compares two texts."""
    dev = measure_sts({"dev": {"dev": read_sts_benchmark(SENTEVAL, "dev")}}, score)
    sets = measure_sts(read_sts_sets(SENTEVAL), score)
    return {
        "representation": title,
        "STS-B dev": dev.compute_correlation("dev"),
        **{n: sets.compute_correlation(n) for n in sets.data},
        "STS average": sets.compute_average(),
    }


def transferred(encode: EncodeSentences, tasks: list[str]) -> dict[str, float]:
    """Accuracies on transfer tasks, probed where that is fast."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {r.task: r.accuracy for r in measure_transfer(SENTEVAL, lambda texts: encode(texts).to(device), RandomKey(0), tasks)}


@functools.cache
def counted() -> list[dict[str, Any]]:
    """What needs no vectors and no seed."""
    return [measured("tf-idf", tf_idf_cosine), measured("letter trigrams", ngram_jaccard)]


def show(found: dict[str, Any]) -> None:
    print(f"{found['method']}, seed {found['seed']}: {found['steps']} steps, {found['seconds']} s")
    for r in found["results"]:
        numbers = "  ".join(f"{name} {100 * r[name]:.1f}" for name in ("STS-B dev", "STS-B", "STS average"))
        print(f"  {r['representation']:20} {numbers}", flush=True)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each method, measure and floor: what training gained, over seeds, with the standard error of the paired differences.
    Rows of other settings than today's do not count."""
    found, rows = [], [r for r in rows if is_current(r)]
    for name in (m for m in METHODS if any(r["method"] == m for r in rows)):
        tables = [{x["representation"]: x for x in r["results"]} for r in rows if r["method"] == name]
        for metric in [k for k in tables[0][TRAINED] if k != "representation"]:
            for floor in (f for f in tables[0] if f != TRAINED and metric in tables[0][f]):
                gains = [t[TRAINED][metric] - t[floor][metric] for t in tables]
                error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
                found.append({
                    "method": name, "metric": metric, "floor": floor, "seeds": len(gains),
                    "trained": mean(t[TRAINED][metric] for t in tables),
                    "value of the floor": mean(t[floor][metric] for t in tables), "gain": mean(gains), "error": error,
                    "above": len(gains) >= 3 and error is not None and mean(gains) > 2 * error,
                })  # fmt: skip
    return found


if __name__ == "__main__":
    main()
