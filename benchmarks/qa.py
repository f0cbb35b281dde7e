"""Questions and passages: DPR's towers beside BM25, the towers before training and random ones; both fused; a reader.

    python benchmarks/qa.py floors --encoder FOLDER --on xquad       BM25, the encoder as it is, both; also --on trecqa, --on random
    python benchmarks/qa.py xquad --encoder FOLDER --seed 0 --fold 0
    python benchmarks/qa.py trecqa --encoder FOLDER --seed 0
    python benchmarks/qa.py reader --encoder FOLDER --seed 0 --fold 0
    python benchmarks/qa.py summary                                  the table, with paired bootstraps

Each run adds its ranks to benchmarks/results/qa.json; `summary` reads them all.

Protocol, XQuAD English (240 paragraphs of 48 articles, 1,190 questions): articles are halved by the seed; one half (the fold) is for
testing, four articles of the other choose the weight of the hybrid, the rest are trained on. Retrieval is always over all 240
paragraphs. The towers learn from windows of 48 words around the answer (the reader: 40), with one BM25-mined negative each, and encode
whole paragraphs (256 tokens). TREC-QA has its own train and test (its hybrid weighs both alike); measured within each
question's judged sentences (the 68 test questions with both right and wrong ones), and over all test sentences at once. Last step, no
choice by test numbers. Bootstraps draw whole articles (XQuAD) or questions (TREC-QA), over the mean of the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import stored, write
from provenance import DATA, Training, agrees, provenance
from qa_summary import halves, summarise

from nearfar.core import RandomKey, Recipe, RuntimeConfig, TrainConfig
from nearfar.data.common.tokenizer import load_pretrained_tokenizer
from nearfar.data.questions.dataset import Questions
from nearfar.data.questions.load import load_questions
from nearfar.data.text.dataset import Texts
from nearfar.data.text.readers import build_texts
from nearfar.evaluate.squad_answers import score_answers
from nearfar.index.base_index import Hits
from nearfar.index.bm25 import build_bm25
from nearfar.index.passage_reader import PassageReader
from nearfar.index.retrievers import LexicalRetriever, choose_hybrid_weight, fuse, mine_hard_negatives, rank_candidates
from nearfar.modalities import find_modality
from nearfar.modalities.reader_evaluation import find_best_sentence
from nearfar.recipes.language.dpr import DPR
from nearfar.recipes.language.dpr_reader import DPRReader
from nearfar.train.encode import encode_all
from nearfar.train.model import Model
from nearfar.train.session import TrainingSession, pick_device
from nearfar.train.training_loop import train

PARTS = ("floors", "xquad", "trecqa", "reader")
TOWERS = DPR(score="cosine", temperature=0.05, pooling="mean")
READ_LENGTH = 256
WINDOW, READ_WINDOW = 48, 40
"""Words of a training passage: of the towers, of the reader."""
READ = 200
"""Test questions of a fold that the reader is asked, the first ones in a keyed order."""


def settings(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what a part is trained with; of `floors`, nothing is trained."""
    found: dict[str, Any] = {
        "floors": {},
        "xquad": {"max_length": 80, "batch_size": 32, "epochs": args.epochs or 1, "lr": 2e-5},
        "trecqa": {"max_length": 64, "batch_size": 32, "epochs": args.epochs or 1, "lr": 2e-5},
        "reader": {"max_length": 96, "batch_size": 16, "epochs": args.epochs or 2, "lr": 1e-4},
    }[part]
    return found | (asdict(TOWERS) if part in ("xquad", "trecqa") else {})


def run_of(args: argparse.Namespace, **given: Any) -> TrainConfig:
    """Return the settings of a run from the weights of the encoder."""
    return TrainConfig(encoder=f"hf:{args.encoder}", seed=args.seed, weight_decay=0.0, warmup_ratio=0.1, precision=args.precision, **given)


def given_to_run(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return those settings of a part that its run has."""
    return {name: value for name, value in settings(part, args).items() if name in ("max_length", "batch_size", "epochs", "lr")}


def told(part: str, args: argparse.Namespace, data_fingerprint: str) -> dict[str, Any]:
    """Return the provenance of a part."""
    recipe = DPRReader() if part == "reader" else TOWERS
    return provenance(settings(part, args), data_fingerprint, Training(recipe, run_of(args, **given_to_run(part, args))))


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a stored part has today's settings."""
    args = parser().parse_args([])
    for part in PARTS:
        recipe = DPRReader() if part == "reader" else TOWERS
        if agrees(row, settings(part, args), Training(recipe, run_of(args, **given_to_run(part, args)))):
            return True
    return False


def trained_on(recipe: Recipe, texts: Texts, args: argparse.Namespace, **given: Any) -> tuple[Model, float]:
    """Train a recipe on texts from the weights of the encoder, or take no step without `args.trains`."""
    tokenizer = load_pretrained_tokenizer(args.encoder)
    config = run_of(args, **given)
    device = pick_device(args.device)
    session = TrainingSession(recipe, config, RuntimeConfig(device=args.device), texts.tokenize(tokenizer, config.max_length), device)
    began = time.perf_counter()
    if args.trains:
        train(session, [])
    session.net.eval()
    return Model(
        recipe, session.config, session.net, session.step, device, find_modality(recipe.card.modality), tokenizer=tokenizer
    ), time.perf_counter() - began


def vectors(model: Model, texts: tuple[str, ...], tower: str) -> np.ndarray:
    """Texts of like length share a batch: less padding."""
    assert model.tokenizer is not None
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    data = build_texts({"text": [texts[i] for i in order]}, "texts").tokenize(model.tokenizer, READ_LENGTH)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.config.precision == "bf16"):
        found = encode_all(model.recipe, model.net, data, model.device, batch_size=32, tower=tower).numpy()
    return found[np.argsort(order)]


def hits_of(scores: np.ndarray, k: int = 100) -> Hits:
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(np.take_along_axis(scores, rows, 1).astype(np.float32), rows)


def ranks(questions: Questions, rows: np.ndarray) -> str:
    """The rank of the first right passage of each question, 0 for none: short to store, and all that top-k and MRR need."""
    found = questions.is_gold(rows)
    return " ".join(map(str, np.where(found.any(1), found.argmax(1) + 1, 0)))


def window(passage: str, answer: str | None, rng_key: RandomKey, slot: int, width: int = WINDOW) -> str:
    """So many words of a passage with the answer among them, at a random place; anywhere where there is no answer."""
    words = list(re.finditer(r"\S+", passage))
    if len(words) <= width:
        return passage
    low, high = 0, len(words) - width
    if answer is not None:
        at = passage.find(answer)
        inside = [i for i, word in enumerate(words) if word.end() > at and word.start() < at + len(answer)]
        low, high = max(0, min(inside[-1] - width + 1, high)), min(high, inside[0])
    first = low + int(rng_key.integers(np.array([slot]), max(high - low, 0) + 1)[0])
    return passage[words[first].start() : words[first + width - 1].end()]


def windows(texts: Texts, rng_key: RandomKey, width: int = WINDOW) -> Texts:
    """Training rows with every passage cut to a window."""
    columns = {name: texts.get_strings(column=name) for name in texts.columns}
    told = enumerate(zip(columns["passage"], columns["answer"], strict=True))
    columns["passage"] = [window(p, a, rng_key("gold"), i, width) for i, (p, a) in told]
    if "negative" in columns:
        columns["negative"] = [window(p, None, rng_key("negative"), i, width) for i, p in enumerate(columns["negative"])]
    return build_texts(columns, texts.source)


def random_towers(args: argparse.Namespace, like: Model) -> Model:
    """The same architecture with random weights, one net for both towers."""
    from transformers import AutoConfig, AutoModel

    with RandomKey(args.seed)("random towers").fork_torch_rng():
        model = AutoModel.from_config(AutoConfig.from_pretrained(args.encoder), add_pooling_layer=False)
    for tower in (like.net.question, like.net.passage):
        tower.model.load_state_dict(model.state_dict())
    return like


def towers_before(args: argparse.Namespace, questions: Questions) -> Model:
    args.trains = False
    return trained_on(TOWERS, questions.to_training_texts(), args, max_length=READ_LENGTH, batch_size=2, steps=1)[0]


def floors(args: argparse.Namespace) -> dict[str, Any]:
    """What needs no training. `random`: the towers with random weights, on XQuAD."""
    questions = load_questions(args.trecqa / "test.csv" if args.on == "trecqa" else args.xquad)
    before = towers_before(args, questions)
    measured = {"measured": {args.on: told("floors", args, questions.to_training_texts().fingerprint)}}
    if args.on == "random":
        return measured | {
            "random": {"random weights": ranks(questions, hits_of(similarities(random_towers(args, before), questions)).rows)}
        }
    words = build_bm25(questions.passages)
    scores = {
        "BM25": np.stack([words.score_passages(q) for q in questions.questions]),
        "encoder before training": similarities(before, questions),
    }
    first, second = (hits_of(s) for s in scores.values())
    rows = {title: hits_of(s).rows for title, s in scores.items()}
    rows["BM25 + encoder before training, rank fusion"] = fuse(first, second, None, 100).rows
    rows["BM25 + encoder before training, half and half"] = fuse(first, second, 0.5, 100).rows
    found: dict[str, Any] = measured | {args.on: {title: ranks(questions, r) for title, r in rows.items()}}
    if args.on == "trecqa":
        lexical, dense = scores.values()
        scores["BM25 + encoder before training, half and half"] = standard(lexical) / 2 + standard(dense) / 2
        found["trecqa, judged"] = {title: judged_values(questions, s) for title, s in scores.items()}
    return found


def similarities(model: Model, questions: Questions) -> np.ndarray:
    return vectors(model, questions.questions, "question") @ vectors(model, questions.passages, "passage").T


def standard(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True).clip(1e-9)


def xquad(args: argparse.Namespace) -> dict[str, Any]:
    questions = load_questions(args.xquad)
    learn, choose, test = (questions.subset(part) for part in halves(questions, args.seed, args.fold))
    lexical = LexicalRetriever(build_bm25(questions.passages))
    pairs = windows(learn.to_training_texts(mine_hard_negatives(learn, lexical)), RandomKey(args.seed)("windows"))
    model, seconds = trained_on(TOWERS, pairs, args, **given_to_run("xquad", args))
    passages = vectors(model, questions.passages, "passage")
    dense = [hits_of(vectors(model, part.questions, "question") @ passages.T) for part in (choose, test)]
    by_words = [lexical.search(part.questions, 100) for part in (choose, test)]
    weight = choose_hybrid_weight(by_words[0], dense[0], choose)
    rows = {
        "DPR": dense[1].rows,
        "BM25 + DPR": fuse(by_words[1], dense[1], weight, 100).rows,
        "BM25 + DPR, rank fusion": fuse(by_words[1], dense[1], None, 100).rows,
    }
    return {
        **told("xquad", args, pairs.fingerprint), "train": len(learn), "test": len(test), "weight": weight,
        "train seconds": round(seconds, 1),
        "ranks": {title: ranks(test, r) for title, r in rows.items()},
    }  # fmt: skip


def judged_values(questions: Questions, scores: np.ndarray) -> dict[str, str]:
    """Average precision and reciprocal rank within the judged sentences, of the questions with right and wrong ones."""
    from nearfar.evaluate.retrieval import average_precision, reciprocal_rank

    both = [i for i, (g, c) in enumerate(zip(questions.gold, questions.candidates, strict=True)) if 0 < len(g) < len(c)]
    chosen = questions.subset(both)
    found = torch.from_numpy(chosen.is_gold(rank_candidates(chosen.candidates, scores[both])))
    relevant = torch.tensor([len(g) for g in chosen.gold])
    values = {"MAP": average_precision(found, relevant), "MRR": reciprocal_rank(found)}
    return {name: " ".join(f"{v:.6f}" for v in measured.tolist()) for name, measured in values.items()}


def trecqa(args: argparse.Namespace) -> dict[str, Any]:
    learn, test = (load_questions(args.trecqa / f"{part}.csv") for part in ("train", "test"))
    wrong = [tuple(c for c in rows if c not in gold) for rows, gold in zip(learn.candidates, learn.gold, strict=True)]
    pairs = learn.to_training_texts(wrong)
    model, seconds = trained_on(TOWERS, pairs, args, **given_to_run("trecqa", args))
    words = build_bm25(test.passages)
    lexical = np.stack([words.score_passages(q) for q in test.questions])
    dense = similarities(model, test)
    scores = {"DPR": dense, "BM25 + DPR, half and half": standard(lexical) / 2 + standard(dense) / 2}
    return {
        **told("trecqa", args, pairs.fingerprint), "train": len(learn), "train seconds": round(seconds, 1),
        "judged": {title: judged_values(test, s) for title, s in scores.items()},
        "ranks": {title: ranks(test, hits_of(s).rows) for title, s in scores.items()},
    }  # fmt: skip


def reader(args: argparse.Namespace) -> dict[str, Any]:
    questions = load_questions(args.xquad)
    learn, _, everything = (questions.subset(part) for part in halves(questions, args.seed, args.fold))
    test = everything.subset(np.sort(RandomKey(args.seed)("read").permutation(len(everything))[:READ]))
    pairs = windows(learn.to_training_texts(), RandomKey(args.seed)("windows"), READ_WINDOW)
    model, seconds = trained_on(DPRReader(), pairs, args, **given_to_run("reader", args))
    first = LexicalRetriever(build_bm25(questions.passages)).search(test.questions, 1).rows[:, 0]
    gold = [questions.passages[g[0]] for g in test.gold]
    retrieved = [questions.passages[row] for row in first]
    spans = PassageReader.from_model(model, READ_LENGTH).read(test.questions, gold)
    other = [i for i in range(len(test)) if retrieved[i] != gold[i]]
    elsewhere = PassageReader.from_model(model, READ_LENGTH).read([test.questions[i] for i in other], [retrieved[i] for i in other])
    end_to_end = [span.text for span in spans]
    for i, span in zip(other, elsewhere, strict=True):
        end_to_end[i] = span.text
    said = {
        "reader, gold passage": [span.text for span in spans],
        "reader, first passage of BM25": end_to_end,
        "best sentence, gold passage": [find_best_sentence(q, p) for q, p in zip(test.questions, gold, strict=True)],
        "first span of 3 words, gold passage": [" ".join(p.split()[:3]) for p in gold],
    }
    found = {title: score_answers(answers, test.answers) for title, answers in said.items()}
    values = {t: {"EM": " ".join(f"{v:.0f}" for v in s.exact_match), "F1": " ".join(f"{v:.4f}" for v in s.f1)} for t, s in found.items()}
    counts = {"train": len(learn), "test": len(test), "train seconds": round(seconds, 1)}
    return {**told("reader", args, pairs.fingerprint), **counts, "answers": values}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="summary", choices=(*PARTS, "summary"))
    parser.add_argument("--encoder", default=str(DATA / "minilm"), help="folder of a text model with which the towers begin")
    parser.add_argument("--xquad", type=Path, default=DATA / "xquad" / "xquad.en.json")
    parser.add_argument("--trecqa", type=Path, default=DATA / "trecqa")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fold", type=int, default=0, choices=(0, 1))
    parser.add_argument("--on", default="xquad", choices=("xquad", "trecqa", "random"), help="of floors: what they are measured on")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="qa", help="of the file of results")
    return parser


def main() -> None:
    args = parser().parse_args()
    args.trains = True
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    began = time.perf_counter()
    result: dict[str, Any] | None = None
    if args.part != "summary":
        result = {"floors": floors, "xquad": xquad, "trecqa": trecqa, "reader": reader}[args.part](args)
        named = {"seed": args.seed, "fold": args.fold, "precision": args.precision, "encoder": Path(args.encoder).name}
        named |= {"seconds": round(time.perf_counter() - began, 1)}
        (result["measured"][args.on] if args.part == "floors" else result).update(named)
    found = stored(args.name)  # read last: another run may have added to it meanwhile
    if args.part == "floors" and result is not None:
        before = found.get("floors", {})
        found["floors"] = before | result | {"measured": before.get("measured", {}) | result["measured"]}
    elif result is not None:
        found.setdefault(args.part, {})[f"seed {args.seed}, fold {args.fold}"] = result
    if found:
        found["summary"] = summarise(found, args)
        print(json.dumps(found["summary"], indent=1))
        if result is not None:
            write(args.name, found)


if __name__ == "__main__":
    main()
