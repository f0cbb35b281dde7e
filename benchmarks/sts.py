"""A sentence encoder on the seven STS sets, beside floors that count words and letters, in one run.

    python benchmarks/sts.py --encoder FOLDER --name all-minilm --whiten 256 --transfer CR,TREC,MRPC,MR [--data FOLDER]

Protocol: cosine, Spearman, "all" (files of a year joined); the JSON also holds "mean", "wmean" and every file's number. Differences
to the best floor by paired bootstrap over pairs (1,000 draws). Whitening is fitted on STS-B's training sentences, without
their scores. Nothing is chosen by these numbers, and nothing is read from the network.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from common import write
from provenance import DATA, agrees, provenance

from nearfar.cli.terminal import show_progress
from nearfar.core import RandomKey
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.text.senteval import read_sts_benchmark
from nearfar.encoders.sentence import SentenceEncoder
from nearfar.evaluate.isotropy import measure_isotropy
from nearfar.evaluate.lexical_baselines import build_random_word_encoder, ngram_jaccard, tf_idf_cosine
from nearfar.evaluate.senteval_transfer import measure_transfer
from nearfar.evaluate.sts import EncodeSentences, StsResult, build_cosine_scorer, compare_sts, measure_sts, read_sts_sets, render_sts
from nearfar.heads.whitening import Whiten

SETTINGS = {"encoder": "all-minilm", "whiten": 256, "transfer": ["CR", "TREC", "MRPC", "MR"], "seed": 0}
"""Settings of the stored result, which the command above has."""


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has these settings."""
    return agrees(row, SETTINGS)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--encoder", required=True, help="a folder with a transformers or sentence-transformers text model")
    parser.add_argument("--data", default=DATA / "senteval", type=Path, help="SentEval's folder (holds STS, SICK, MR, …)")
    parser.add_argument("--whiten", type=int, help="also measure the encoder whitened to this many directions")
    parser.add_argument("--transfer", default="", help="transfer tasks, with commas between them")
    parser.add_argument("--name", help="of the row and the file of results; default: the encoder's folder")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    args = parser().parse_args()
    name, rng_key = args.name or Path(args.encoder).resolve().name, RandomKey(args.seed)
    model = SentenceEncoder(args.encoder, args.device)
    encode = remembered(lambda texts: model.encode(texts, show_progress("texts")))
    sets = read_sts_sets(args.data)

    began = time.perf_counter()
    ours = {name: measure_sts(sets, build_cosine_scorer(encode))}
    seconds = time.perf_counter() - began
    sentences = training_sentences(args.data)
    geometry = {name: measure_isotropy(encode(sentences))}
    if args.whiten:
        head = Whiten(model.dim, args.whiten).to(args.device)
        head.fit(encode(sentences))
        whitened = f"{name}, whitened to {args.whiten}"
        ours[whitened] = measure_sts(sets, build_cosine_scorer(lambda texts: head(encode(texts))))
        geometry[whitened] = measure_isotropy(head(encode(sentences)))
    floors = {
        "tf-idf": measure_sts(sets, tf_idf_cosine),
        "letter trigrams": measure_sts(sets, ngram_jaccard),
        "random word vectors": measure_sts(sets, build_cosine_scorer(build_random_word_encoder(rng_key))),
    }
    print(render_sts(ours | floors))
    for title, measured in geometry.items():
        print(
            f"{title}: mean cosine {measured.mean_cosine:.3f}, partition {measured.partition_isotropy:.3f}, "
            f"rank {measured.effective_rank:.1f}"
        )
    result = {
        "encoder": name,
        "protocol": {"similarity": "cosine", "correlation": "spearman", "joined": "all", "bootstrap_draws": 1000, "seed": args.seed},
        "seconds": round(seconds, 1),
        "results": {title: sts.as_dict() for title, sts in (ours | floors).items()},
        "differences": differences(ours, floors, rng_key),
        "isotropy": {title: dataclasses.asdict(measured) for title, measured in geometry.items()},
    }
    tasks = [task for task in args.transfer.split(",") if task]
    if tasks:
        result["transfer"] = transfer(args.data, encode, rng_key, tasks)
    settings = {"encoder": name, "whiten": args.whiten, "transfer": tasks, "seed": args.seed}
    result |= provenance(settings, hash_bytes("\n".join(sentences).encode()))
    print(write(f"sts_{name}", result))


def remembered(encode: EncodeSentences) -> EncodeSentences:
    """Vectors are kept: the same lists of texts are measured raw and whitened."""
    kept: dict[tuple[str, ...], torch.Tensor] = {}

    def known(texts: list[str]) -> torch.Tensor:
        name = tuple(texts)
        if name not in kept:
            kept[name] = encode(texts)
        return kept[name]

    return known


def training_sentences(folder: Path) -> list[str]:
    pairs = read_sts_benchmark(folder, "train")
    return list(dict.fromkeys(pairs.first + pairs.second))


def differences(ours: dict[str, StsResult], floors: dict[str, StsResult], rng_key: RandomKey) -> dict[str, dict]:
    """Each of our rows against the best floor."""
    best = max(floors, key=lambda title: floors[title].compute_average())
    found = {}
    for title, sts in ours.items():
        against = compare_sts(sts, floors[best], rng_key)
        average = against["average"]
        print(
            f"{title} - {best}: {100 * average.difference:+.2f} ± {100 * average.standard_error:.2f} on average "
            f"(95 %: {100 * average.interval_low:+.2f} to {100 * average.interval_high:+.2f})"
        )
        found[f"{title} - {best}"] = {name: dataclasses.asdict(d) for name, d in against.items()}
    return found


def transfer(folder: Path, encode: EncodeSentences, rng_key: RandomKey, tasks: list[str]) -> list[dict]:
    rows = []
    for task in tasks:
        began = time.perf_counter()
        (r,) = measure_transfer(folder, encode, rng_key, [task])
        extra = f", F1 {100 * r.f1:.2f}" if r.f1 is not None else ""
        print(f"{task:5} {100 * r.accuracy:.2f}{extra} (majority {100 * r.majority_accuracy:.2f})", flush=True)
        rows.append(dataclasses.asdict(r) | {"seconds": round(time.perf_counter() - began, 1)})
    return rows


if __name__ == "__main__":
    main()
