"""Retrieval: BM25 against its formula, fusion against loops, one interface for all. Files of BM25: test_bm25_files.py."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nearfar
from nearfar.cli.main import main
from nearfar.core import NearfarError, UsageError
from nearfar.data.questions.dataset import Questions
from nearfar.data.questions.load import load_questions
from nearfar.data.text.load import load_texts
from nearfar.data.text.readers import build_texts
from nearfar.index import build_index
from nearfar.index.base_index import Hits
from nearfar.index.bm25 import build_bm25, tokenize_without_stopwords
from nearfar.index.passage_reader import PassageReader, find_best_spans
from nearfar.index.retrievers import (
    DenseRetriever,
    HybridRetriever,
    LexicalRetriever,
    choose_hybrid_weight,
    encode_questions,
    fuse,
    mine_hard_negatives,
    rank_candidates,
)

PASSAGES = (
    "Rollo led the Vikings to Normandy.",
    "Normandy is a region in France, and Normandy is green.",
    "The duke of Normandy conquered England in 1066.",
    "Bees make honey in summer.",
)
QUESTIONS = Questions(
    questions=("Who led the Vikings?", "Who conquered England?", "What do bees make?"),
    passages=PASSAGES,
    gold=((0,), (2,), (3,)),
    answers=(("Rollo",), ("the duke of Normandy",), ("honey",)),
    candidates=((), (), ()),
    passage_documents=np.array([0, 0, 0, 1]),
)


ASKED = QUESTIONS.questions, QUESTIONS.gold, QUESTIONS.answers


def bm25_by_hand(question: str, passages, k1=1.5, b=0.75) -> list[float]:
    """Lucene's BM25, as its formula stands in Kamphuis et al. 2020."""
    words = tokenize_without_stopwords(passages)
    mean = sum(map(len, words)) / len(words)
    total = [0.0] * len(passages)
    for word in tokenize_without_stopwords([question])[0]:
        holding = sum(word in w for w in words)
        idf = math.log(1 + (len(words) - holding + 0.5) / (holding + 0.5))
        for i, w in enumerate(words):
            tf = Counter(w)[word]
            total[i] += idf * tf / (tf + k1 * (1 - b + b * len(w) / mean))
    return total


@pytest.mark.parametrize("question", [*QUESTIONS.questions, "Normandy Normandy green", "1066?"])
def test_bm25_is_its_formula(question):
    assert build_bm25(PASSAGES).score_passages(question).tolist() == pytest.approx(bm25_by_hand(question, PASSAGES), rel=1e-5)


def test_bm25_finds_and_orders_ties_by_row():
    hits = build_bm25(PASSAGES).search([*QUESTIONS.questions, "unheard-of zyx", "the of"], 3)
    assert hits.rows[:3, 0].tolist() == [0, 2, 3]
    assert hits.rows[3:].tolist() == [[0, 1, 2]] * 2
    assert hits.scores[3:].max() == 0
    assert (np.diff(hits.scores, axis=1) <= 0).all()
    assert build_bm25(PASSAGES).search(["bees"], 99).rows.shape == (1, 4)
    many = build_bm25([f"apple word{i}" for i in range(1000)] + ["apple apple"])
    assert many.search(["apple"], 5).rows.tolist() == [[1000, 0, 1, 2, 3]], "also where more are equal than are asked for"


def test_nothing_to_count_and_a_missing_package_are_said(monkeypatch):
    for passages in ([], ["...", "the"]):
        with pytest.raises(UsageError, match="passages"):
            build_bm25(passages)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UsageError, match=r"nearfar\[search\]"):
        build_bm25(PASSAGES)


LISTS = st.permutations(range(6)).map(lambda rows: np.array([rows[:4]]))
SCORES = st.lists(st.floats(-5, 5, width=32), min_size=4, max_size=4).map(lambda s: np.array([sorted(s, reverse=True)], dtype=np.float32))


@given(LISTS, LISTS, SCORES, SCORES, st.sampled_from([None, 0.0, 0.3, 1.0]))
def test_fusion_agrees_with_a_loop(rows_a, rows_b, scores_a, scores_b, weight):
    def parts(rows, scores):
        if weight is None:
            return {int(r): 1 / (60 + i + 1) for i, r in enumerate(rows[0])}
        spread = float(scores.std()) or 1.0
        return {int(r): float(s - scores.mean()) / spread for r, s in zip(rows[0], scores[0], strict=True)}

    a, b = parts(rows_a, scores_a), parts(rows_b, scores_b)
    shares = (1, 1) if weight is None else (1 - weight, weight)
    expected = {r: shares[0] * a.get(r, min(a.values())) + shares[1] * b.get(r, min(b.values())) for r in a.keys() | b.keys()}
    found = fuse(Hits(scores_a, rows_a), Hits(scores_b, rows_b), weight, 6)
    assert sorted(found.rows[0].tolist()) == sorted(expected)
    assert found.scores[0].tolist() == pytest.approx([expected[r] for r in found.rows[0].tolist()], abs=1e-4)
    assert (np.diff(found.scores[0]) <= 0).all()


def test_the_weight_goes_to_the_retriever_that_is_right():
    right = Hits(np.array([[3.0, 2, 1, 0]] * 3, dtype=np.float32), np.array([[0, 1, 2, 3], [2, 0, 1, 3], [3, 0, 1, 2]]))
    wrong = Hits(right.scores, right.rows[:, ::-1].copy())
    assert choose_hybrid_weight(wrong, right, QUESTIONS) > 0.5
    assert choose_hybrid_weight(right, wrong, QUESTIONS) < 0.5
    assert choose_hybrid_weight(right, right, QUESTIONS) == 0.5


def test_mined_negatives_neither_are_gold_nor_hold_the_answer():
    found = mine_hard_negatives(QUESTIONS, LexicalRetriever(build_bm25(PASSAGES)), per_question=2)
    assert found[1] == (0, 1)
    for rows, gold, answers in zip(found, QUESTIONS.gold, QUESTIONS.answers, strict=True):
        assert not set(rows) & set(gold)
        assert not any(a.lower() in PASSAGES[r].lower() for r in rows for a in answers)


def test_mined_negatives_become_a_table_to_train_on(tmp_path, capsys):
    rows = [{"question": q, "passage": PASSAGES[g], "answers": list(a)} for q, (g,), a in zip(*ASKED, strict=True)]
    data, out = tmp_path / "asked.jsonl", tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"question": "Where?", "passage": PASSAGES[1], "answer": "e"}]))
    assert main(["mine", str(data), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "3 rows of 3 questions" in said.out
    assert "1 of 4 questions left out" in said.err, "every passage holds the letter e"
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["question"] for row in found] == list(QUESTIONS.questions)
    for row, asked in zip(found, rows, strict=True):
        assert {name: row[name] for name in asked} == asked
        assert row["negative"] != row["passage"]
        assert not any(answer.lower() in row["negative"].lower() for answer in row["answers"])
    assert load_texts(str(out)).train.columns == ("passage", "question", "negative")
    assert load_questions(out).gold == load_questions(data).gold[:3]
    assert main(["mine", str(data), "--out", str(tmp_path / "pairs.csv")]) == 2
    assert ".jsonl" in capsys.readouterr().err
    data.write_text(json.dumps(rows[0]) + "\n")
    assert main(["mine", str(data), "--out", str(tmp_path / "none.jsonl")]) == 2
    assert "no negative" in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()


def test_a_search_within_judged_lists_keeps_to_them():
    scores = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.8]])
    assert rank_candidates([(0, 2), (2, 1, 0)], scores).tolist() == [[2, 0, -1], [2, 0, 1]]


def test_scores_that_are_no_numbers_are_not_ranked():
    scores = np.array([[0.1, np.nan, 0.5]], dtype=np.float32)
    assert rank_candidates([(0, 2)], scores).tolist() == [[2, 0]], "nobody asked for the broken one"
    with pytest.raises(NearfarError, match="scores of candidates: question 0 has NaN or infinity among its scores"):
        rank_candidates([(0, 1)], scores)
    rows = np.array([[0, 1, 2]])
    with pytest.raises(NearfarError, match="scores to be fused: question 0 has NaN or infinity among its scores"):
        fuse(Hits(scores, rows), Hits(np.zeros_like(scores), rows), 0.5, 3)


@pytest.fixture(scope="module")
def trained():
    texts = build_texts({"passage": list(PASSAGES) * 8, "question": ["Who led?", "Where?", "Who won?", "What do bees make?"] * 8}, "p")
    return nearfar.fit("dpr", data=texts, encoder="bag", pooling="mean", vocab_size=300, max_length=24, steps=40, batch_size=8, lr=1e-2)


@pytest.mark.parametrize("metric", ["dot", "l2", "cosine"])
def test_dense_search_is_the_score_of_both_towers(trained, metric):
    vectors = trained.encode(list(PASSAGES))
    index = build_index(vectors, list(PASSAGES), None, metric=metric)
    questions = ["Who led?", "What do bees make?"]
    hits = DenseRetriever(trained, index).search(questions, 4)
    q = encode_questions(trained, questions)
    assert not torch.allclose(q, trained.encode(questions)), "a question has a tower of its own"
    unit = torch.nn.functional.normalize
    table = {"dot": q @ vectors.T, "l2": -torch.cdist(q, vectors), "cosine": unit(q, dim=1) @ unit(vectors, dim=1).T}[metric]
    assert hits.rows.tolist() == table.argsort(1, descending=True).tolist()
    assert (np.diff(hits.scores, axis=1) <= 0).all(), "larger is better, whatever the metric"


def test_all_retrievers_answer_alike(trained):
    lexical, dense = (
        LexicalRetriever(build_bm25(PASSAGES)),
        DenseRetriever(trained, build_index(trained.encode(list(PASSAGES)), None, None, metric="dot")),
    )
    for retriever in (lexical, dense, HybridRetriever(lexical, dense), HybridRetriever(lexical, dense, None)):
        hits = retriever.search(["What do bees make?", "Where?"], 2)
        assert hits.rows.shape == hits.scores.shape == (2, 2)
        assert hits.rows[0, 0] == 3
    for weight, alone in ((0.0, lexical), (1.0, dense)):
        rows = HybridRetriever(lexical, dense, weight).search(["Who led?"], 1).rows
        assert rows.tolist() == alone.search(["Who led?"], 1).rows.tolist()
    with pytest.raises(UsageError, match="between 0"):
        HybridRetriever(lexical, dense, 1.5)
    with pytest.raises(UsageError, match="not a reader but DPR"):
        PassageReader.from_model(trained)


def test_passages_keep_the_numbers_they_have_in_an_index():
    hits = LexicalRetriever(build_bm25(PASSAGES[1:]), np.array([1, 5, 7])).search(["bees"], 1)
    assert hits.rows.tolist() == [[7]]


def test_the_best_span_is_the_best_of_all_allowed_ones():
    generator = torch.Generator().manual_seed(0)
    begins, ends = torch.randn(2, 5, 9, generator=generator)
    inside = torch.rand(5, 9, generator=generator) > 0.3
    first, last, score = find_best_spans(begins, ends, inside, max_tokens=3)
    for i in range(5):
        allowed = [(a, b) for a in range(9) for b in range(a, min(9, a + 3)) if inside[i, a] and inside[i, b]]
        best = max(allowed, key=lambda ab: float(begins[i, ab[0]] + ends[i, ab[1]]))
        assert (int(first[i]), int(last[i])) == best
        assert float(score[i]) == pytest.approx(float(begins[i, best[0]] + ends[i, best[1]]))
