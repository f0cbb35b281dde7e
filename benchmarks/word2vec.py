"""word2vec beside gensim: the same sentences, window, width, negatives, epochs, vocabulary and number of cores, in one run.

    python benchmarks/word2vec.py [--corpus WIKI] [--judged WORDEVAL] [--threads 2]

WIKI and WORDEVAL are folders; default: wiki-en and wordeval in $NEARFAR_DATA or ~/.cache/nearfar.

Measured are words a second (all words of the text, rare ones included, times epochs, over the time of training alone) and how well
vectors agree with people about words: WordSim-353, SimLex-999 and Google's analogies. Floors: untrained vectors, and positive
pointwise mutual information of the same windows, factorised. The two programs take turns, seed by seed, so that what else the
machine does meets both; threads of torch that wait for each other sleep (OMP_WAIT_POLICY), because a core on which one spins is lost to
whoever it waits for. Tiles, batch and learning rate of nearfar were settled on this corpus with WordSim-353 in view, gensim's are its
defaults: words a second are a fair comparison, the correlations flatter nearfar somewhat.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import stored, write
from provenance import DATA, Training, agrees, provenance

from nearfar import recipes
from nearfar.core import Recipe, RuntimeConfig, TrainConfig
from nearfar.data.words.dataset import Corpus, build_corpus, split_words
from nearfar.data.words.readers import read_sentences
from nearfar.evaluate.word_similarity import AnalogyResult, read_analogies, read_rated_pairs, score_analogies, score_word_similarity
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train

METHODS = {"skip-gram": ("word2vec-skipgram-neg", 1), "cbow": ("word2vec-cbow", 0)}
SETTLED = {"skip-gram": {"batch_size": 32, "lr": 0.2}, "cbow": {"batch_size": 128, "lr": 0.3}}
"""Of nearfar: blocks of text a step, and the learning rate of Adagrad; gensim has its own defaults."""
THREADS = {"skip-gram": 2, "cbow": 1}
"""Of torch, at most: a thread of its own reads ahead, and the small sums of CBOW gain nothing from more than one."""
AMONG = 30_000
"""Analogies are asked and answered among the most frequent words, as is the custom."""


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that are stored."""
    found = {name: value for name, value in vars(args).items() if name not in ("corpus", "judged", "name", "methods")}
    return found | {"nearfar": SETTLED, "torch threads": THREADS}


def chosen(name: str, args: argparse.Namespace, seed: int) -> tuple[Recipe, TrainConfig]:
    """Return the recipe and the run that these arguments describe."""
    recipe = recipes.load_method(METHODS[name][0]).recipe_class(
        dim=args.dim, window=args.window, negatives=args.negatives, subsample_threshold=args.subsample
    )
    return recipe, TrainConfig(epochs=args.epochs, optimizer="adagrad", warmup_ratio=0.0, seed=seed, **SETTLED[name])


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored method, or the whole result, has the default settings of this script."""
    args = parser().parse_args([])
    return any(agrees(row, settings(args), Training(*chosen(name, args, 0))) for name in METHODS)


def ours(name: str, corpus: Corpus, args: argparse.Namespace, seed: int, trained: bool = True) -> tuple[np.ndarray, float]:
    """Train nearfar's vectors, and return them with the seconds of training."""
    torch.set_num_threads(min(args.threads, THREADS[name]))
    recipe, config = chosen(name, args, seed)
    session = TrainingSession(recipe, config, RuntimeConfig(device="cpu"), corpus, torch.device("cpu"))
    began = time.perf_counter()
    if trained:
        train(session)
    return session.net.encoder.weight.detach().numpy(), time.perf_counter() - began


def gensims(name: str, corpus: Corpus, sentences: list[list[str]], args: argparse.Namespace, seed: int) -> tuple[np.ndarray, float]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=args.dim, window=args.window, negative=args.negatives, sample=args.subsample, min_count=args.min_count,
        sg=METHODS[name][1], workers=args.threads, seed=seed,
    )  # fmt: skip
    model.build_vocab(sentences)
    assert len(model.wv) == len(corpus), "both must know the same words"
    began = time.perf_counter()
    model.train(sentences, total_examples=len(sentences), epochs=args.epochs)
    took = time.perf_counter() - began
    return np.stack([model.wv[word] for word in corpus.words]), took


def ppmi_svd(corpus: Corpus, window: int, dim: int, smoothing: float = 0.75) -> np.ndarray:
    """Counts of pairs within the window, nearer ones weighing more; positive pointwise mutual information; the largest singular vectors."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import svds

    n, tokens, sentence = len(corpus), corpus.tokens, np.cumsum(corpus.is_sentence_start)
    counts: Any = coo_matrix((n, n), dtype=np.float64).tocsr()
    for distance in range(1, window + 1):
        same = sentence[distance:] == sentence[:-distance]
        a, b = tokens[:-distance][same], tokens[distance:][same]
        counts = counts + coo_matrix((np.full(len(a), (window + 1 - distance) / window), (a, b)), shape=(n, n)).tocsr()
    counts = (counts + counts.T).tocoo()
    row, column = np.asarray(counts.sum(1)).ravel(), np.asarray(counts.sum(0)).ravel() ** smoothing
    information = np.log(counts.data / row[counts.row] / (column / column.sum())[counts.col])
    counts.data = np.maximum(information, 0)
    u, s, _ = svds(counts.tocsr().astype(np.float32), k=dim, v0=np.ones(n, dtype=np.float32))
    return u * np.sqrt(s)


def judge(vectors: np.ndarray, corpus: Corpus, folder: Path) -> dict[str, Any]:
    table = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    found: dict[str, Any] = {}
    for name, file in (("WordSim-353", "wordsim353.tsv"), ("SimLex-999", "SimLex-999.txt")):
        found[name] = dataclasses.asdict(score_word_similarity(table, corpus.word_ids, read_rated_pairs(folder / file)))
    sections = score_analogies(table, corpus.word_ids, read_analogies(folder / "questions-words.txt"), AMONG)
    total = sum(sections.values(), AnalogyResult(0, 0, 0))
    found["analogies"] = {"accuracy": total.accuracy, **dataclasses.asdict(total)}
    found["analogies by section"] = {name: answers.accuracy for name, answers in sections.items() if answers.covered}
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    values = {
        "words/s": [run["words/s"] for run in runs],
        "WordSim-353": [run["WordSim-353"]["spearman"] for run in runs],
        "SimLex-999": [run["SimLex-999"]["spearman"] for run in runs],
        "analogies": [run["analogies"]["accuracy"] for run in runs],
    }
    return {k: {"mean": float(np.mean(v)), "std": float(np.std(v, ddof=1)) if len(v) > 1 else None, "runs": v} for k, v in values.items()}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=DATA / "wiki-en", help="a text file, or a folder of .txt files")
    parser.add_argument(
        "--judged", type=Path, default=DATA / "wordeval", help="folder with wordsim353.tsv, SimLex-999.txt and questions-words.txt"
    )
    parser.add_argument("--methods", default="skip-gram,cbow")
    parser.add_argument("--words", type=int, help="learn from the first sentences with so many words only")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--subsample", type=float, default=1e-3)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="word2vec", help="the name of the file of results")
    return parser


def sentences_of(path: Path, words: int | None) -> list[list[str]]:
    """The text as both programs are given it."""
    found, total = [], 0
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        for line in read_sentences(file):
            found.append(split_words(line))
            total += len(found[-1])
            if words and total >= words:
                return found
    return found


def measured_before(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The methods of an earlier run on the same text with the same settings: methods may be measured one at a time."""
    before = stored(name)
    same = all(before.get(what) == result[what] for what in ("corpus", "settings"))
    return before["methods"] if same else {}


def main() -> None:
    args = parser().parse_args()
    sentences = sentences_of(args.corpus, args.words)
    corpus = build_corpus(sentences, args.min_count, args.corpus.name)
    print(f"{corpus.source_word_count:,} words, {len(corpus):,} of them different and frequent enough")
    result: dict[str, Any] = {
        "corpus": {
            "name": args.corpus.name,
            "words": corpus.source_word_count,
            "vocabulary": len(corpus),
            "fingerprint": corpus.fingerprint,
        },
        **provenance(settings(args), corpus.fingerprint),
        "floors": {
            "untrained": judge(ours("skip-gram", corpus, args, 0, trained=False)[0], corpus, args.judged),
            "PPMI-SVD": judge(ppmi_svd(corpus, args.window, args.dim), corpus, args.judged),
        },
    }
    result["methods"] = measured_before(args.name, result)
    for name, floor in result["floors"].items():
        print(f"{name:22} WordSim-353 {floor['WordSim-353']['spearman']:.3f}  SimLex-999 {floor['SimLex-999']['spearman']:.3f}", flush=True)
    for method in args.methods.split(","):
        runs: dict[str, list[dict[str, Any]]] = {"nearfar": [], "gensim": []}
        for seed in range(args.seeds):
            for program in runs if seed % 2 == 0 else reversed(runs):
                who = ours(method, corpus, args, seed) if program == "nearfar" else gensims(method, corpus, sentences, args, seed + 1)
                found = {"seed": seed, "words/s": corpus.source_word_count * args.epochs / who[1], **judge(who[0], corpus, args.judged)}
                runs[program].append(found)
                print(
                    f"{method:10} {program:8} {found['words/s']:>9,.0f} words/s  WordSim-353 {found['WordSim-353']['spearman']:.3f}  "
                    f"SimLex-999 {found['SimLex-999']['spearman']:.3f}  analogies {found['analogies']['accuracy']:.3f}", flush=True,
                )  # fmt: skip
        means = {program: summary(found) for program, found in runs.items()}
        pairs = list(zip(runs["nearfar"], runs["gensim"], strict=True))
        result["methods"][method] = {
            **means,
            "speed of nearfar / gensim": [a["words/s"] / b["words/s"] for a, b in pairs],
            "WordSim-353 of nearfar - gensim": means["nearfar"]["WordSim-353"]["mean"] - means["gensim"]["WordSim-353"]["mean"],
            "runs": runs,
            **provenance(settings(args), corpus.fingerprint, Training(*chosen(method, args, 0))),
        }
        write(args.name, result)


if __name__ == "__main__":
    main()
