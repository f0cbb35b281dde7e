"""DPR and its reader: the loss as the paper has it, passages that are no negatives, what both learn, and the command line."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

import nearfar
from nearfar.api.evaluate import measure_model
from nearfar.cli.main import main
from nearfar.core import Net, RandomKey, Rows, UsageError
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.data.text.readers import build_texts
from nearfar.index.bm25 import build_bm25
from nearfar.index.index_factory import build_index
from nearfar.index.passage_reader import PassageReader
from nearfar.index.retrievers import LexicalRetriever, encode_questions
from nearfar.losses import dpr
from nearfar.modalities.reader_evaluation import find_best_sentence
from nearfar.modalities.retrieval_evaluation import build_questions, score_retriever
from nearfar.recipes.language.dpr import DPR
from nearfar.recipes.language.dpr_reader import DPRReader
from nearfar.similarity.questions import AnswerSpans, QuestionPassagePairs, hash_texts

SMALL = {"encoder": "bag", "vocab_size": 300, "max_length": 24}


def z_of(n: int = 5, mined: bool = True, **more) -> dict:
    generator = torch.Generator().manual_seed(0)
    q, p, m = torch.randn(3, n, 4, generator=generator, dtype=torch.float64)
    z = {"q": q, "p": p, "same": torch.arange(n)}
    return (z | {"mined": m, "same_mined": torch.arange(n, 2 * n)} if mined else z) | more


def by_hand(z: dict, tau: float = 1.0) -> float:
    """Each question's softmax over all passages that are not its own text again."""
    passages = torch.cat([z["p"], z["mined"]]) if "mined" in z else z["p"]
    same = torch.cat([z["same"], z["same_mined"]]) if "mined" in z else z["same"]
    total = 0.0
    for i, q in enumerate(z["q"]):
        others = [j for j in range(len(passages)) if same[j] != z["same"][i]]
        scores = torch.stack([passages[i] @ q, *(passages[j] @ q for j in others)]) / tau
        total -= float(scores.log_softmax(0)[0])
    return total / len(z["q"])


@pytest.mark.parametrize("mined", [True, False])
def test_the_loss_is_that_of_the_paper(mined):
    z = z_of(mined=mined)
    found = DPR().objective(Net(), z, RandomKey(0))["loss"]
    assert float(found) == pytest.approx(by_hand(z))
    assert float(found) == pytest.approx(float(dpr(z["q"], z["p"], z.get("mined"))))
    assert float(DPR(temperature=0.2).objective(Net(), z, RandomKey(0))["loss"]) == pytest.approx(by_hand(z, 0.2))


def test_a_passage_that_answers_two_questions_is_no_negative_of_either():
    z = z_of(same=torch.tensor([0, 1, 0, 2, 3]), same_mined=torch.tensor([1, 9, 8, 7, 0]))
    found = float(DPR().objective(Net(), z, RandomKey(0))["loss"])
    assert found == pytest.approx(by_hand(z))
    assert found < by_hand(z_of())


def test_equal_texts_have_equal_numbers():
    a, b, c, d = hash_texts(["one", "two", "one", ""]).tolist()
    assert a == c
    assert len({a, b, d}) == 3
    assert hash_texts(["one"]).tolist() == [a]


def test_columns_are_found_by_their_names():
    texts = build_texts({"negative": ["c", "d"], "query": ["a?", "b?"], "positive": ["a", "b"]}, "table")
    rows = Rows(np.array([1]), np.array([0]), np.array([1]))
    tokenizer = train_tokenizer(["a b c d ?"], 300)
    raw = QuestionPassagePairs().read(texts.tokenize(tokenizer, 8), rows, RandomKey(0))
    shown = {name: tokenizer.decode(raw[name][0].tolist()) for name in ("question", "passage", "negative")}
    assert shown == {"question": "b?", "passage": "b", "negative": "d"}
    with pytest.raises(UsageError, match="question and passage"):
        QuestionPassagePairs().count(build_texts({"text": ["a"]}, "list"))


def test_both_towers_learn_to_find_new_questions_passages():
    """Questions about things that are named otherwise in the passages: no word in common, unseen combinations at the test."""
    things = [("dog", "hound"), ("cat", "feline"), ("car", "vehicle"), ("sea", "ocean"), ("rock", "stone"), ("baby", "infant")]
    does = [("eat", "devours"), ("sleep", "slumbers"), ("shine", "glitters"), ("grow", "expands"), ("fall", "drops"), ("move", "travels")]
    pairs = [(f"Does your {a} {v} ?", f"My {b} {w} daily .") for a, b in things for v, w in does]
    test = pairs[::7]
    learn = [pair for pair in pairs if pair not in test]
    data = build_texts({"question": [q for q, _ in learn], "passage": [p for _, p in learn]}, "pairs")
    trained = nearfar.fit("dpr", data=data, **SMALL, pooling="mean", dropout=0.0, steps=120, batch_size=16, lr=2e-2)
    first = []
    for who in (trained, trained.build_untrained()):
        scores = encode_questions(who, [q for q, _ in test]) @ who.encode([p for _, p in pairs]).T
        first.append(sum(pairs[int(i)] in test and pairs[int(i)] == t for i, t in zip(scores.argmax(1), test, strict=True)))
    assert first[0] >= 5
    assert first[1] <= 2


def test_cosine_towers_give_unit_vectors():
    texts = build_texts({"question": ["a?", "b?"] * 8, "passage": ["a", "b"] * 8}, "pairs")
    trained = nearfar.fit("dpr", data=texts, **SMALL, score="cosine", temperature=0.05, steps=2, batch_size=4)
    assert torch.allclose(trained.encode(["a", "b c"]).norm(dim=1), torch.ones(2))


def test_the_reader_loss_is_the_probability_of_all_right_places():
    passages = ["a red box, a red bag", "seven keys", "so many words that the end is far behind them and cut off", "an oak"]
    data = {"question": ["what?"] * 4, "passage": passages, "answer": ["red", "seven keys", "cut off", "oak"]}
    trained = nearfar.fit("dpr-reader", data=data, encoder="bert-tiny", vocab_size=300, max_length=32, steps=1, batch_size=2)
    rows = Rows(np.arange(4), np.arange(4), np.arange(4))
    x = AnswerSpans(32).read(build_texts(data, "rows").tokenize(trained.tokenizer, 32), rows, RandomKey(0))
    assert x["begin"].sum(1).tolist() == [2, 1, 0, 1]
    with torch.no_grad():
        z = trained.recipe.embed(trained.net, x, RandomKey(0))
        begins, ends = trained.recipe.score_spans(trained.net, x["tokens"], x["inside"])
    assert torch.allclose(begins.exp().sum(1), torch.ones(4))
    assert float(begins.exp()[~x["inside"]].sum()) == 0
    for i in range(4):
        if x["begin"][i].any():
            expected = -(begins[i].exp()[x["begin"][i]].sum().log() + ends[i].exp()[x["end"][i]].sum().log())
            assert float(z["loss"][i]) == pytest.approx(float(expected), rel=1e-5)
        else:
            assert float(z["loss"][i]) == float(z["known"][i]) == 0
    none = DPRReader().objective(trained.net, {"loss": torch.zeros(2), "known": torch.zeros(2)}, RandomKey(0))
    assert float(none) == 0, "a batch whose answers were all cut off teaches nothing"


def test_the_reader_learns_to_mark_what_is_asked_for():
    """A word before a color, and a number; the question's kind decides which of them is the answer."""
    colours, numbers_ = ["red", "green", "blue", "black"], ["seven", "nine", "twelve", "forty"]
    rows = [
        (q, f"The old box was {c} and held {n} keys .", a)
        for c in colours
        for n in numbers_
        for q, a in (("Which color ?", c), ("How many ?", n))
    ]
    test, learn = rows[::5], [row for i, row in enumerate(rows) if i % 5]
    data = build_texts({name: [row[i] for row in learn] for i, name in enumerate(("question", "passage", "answer"))}, "boxes")
    trained = nearfar.fit(
        "dpr-reader", data=data, encoder="bert-tiny", vocab_size=400, max_length=32, steps=60, batch_size=16, lr=2e-3, dropout=0.0
    )
    spans = PassageReader.from_model(trained).read([q for q, _, _ in test], [p for _, p, _ in test])
    assert sum(span.text == answer for span, (_, _, answer) in zip(spans, test, strict=True)) >= len(test) - 1
    assert all(passage[span.start : span.end] == span.text for span, (_, passage, _) in zip(spans, test, strict=True))
    assert PassageReader.from_model(trained).read(["Which color ?"], [""])[0].text == ""


def test_an_evaluation_of_a_reader_is_exact_match_and_f1_beside_simple_answers(monkeypatch):
    """What it marks in the test split's passages, against a loop over the reader's own answers; equal pairs share their answers."""
    colours, numbers_ = ["red", "green", "blue", "black"], ["seven", "nine", "twelve", "forty"]
    rows = [("Which color ?", f"Nobody looks here . Its color was {c} . It held {n} keys .", c) for c in colours for n in numbers_]
    rows += [(q, p, f"was {a}") for q, p, a in rows]  # the same question, answered in other words
    data = {name: [row[i] for row in rows] for i, name in enumerate(("question", "passage", "answer"))}
    trained = nearfar.fit(
        "dpr-reader", data=data, encoder="bert-tiny", vocab_size=300, max_length=48, steps=40, batch_size=8, lr=2e-3, dropout=0.0
    )
    found = measure_model(trained, data)
    words, sentence, before, after = found.table.results
    accepted = {}
    for question, passage, answer in zip(
        *(found.splits.test.get_strings(column=c) for c in ("question", "passage", "answer")), strict=True
    ):
        accepted.setdefault((question, passage), set()).add(answer)
    said = PassageReader.from_model(trained).read([q for q, _ in accepted], [p for _, p in accepted])
    assert after["exact"] == pytest.approx(np.mean([s.text in a for s, a in zip(said, accepted.values(), strict=True)]))
    assert after["f1"] >= after["exact"] > before["exact"]
    assert [r["baseline"] for r in found.table.results] == [True, True, True, False]
    assert words["exact"] == words["f1"] == 0
    assert sentence["exact"] == 0, "a sentence is more than a color"
    assert sentence["f1"] > 0
    assert "exact match" in found.table.render()
    monkeypatch.setitem(sys.modules, "bm25s", None)
    assert [r["representation"] for r in measure_model(trained, data).table.results] == [
        "the first 3 words",
        "untrained reader",
        "trained reader",
    ]


@pytest.mark.parametrize(("passage", "found"), [
    ("It rained. The bees made honey. It was late.", "The bees made honey."),
    ("Nothing is shared here. Nor there.", "Nothing is shared here."),
    ("It is. It was. And it will be.", "It is. It was. And it will be."),
    ("One sentence about bees", "One sentence about bees"),
    ("  ", "  "),
])  # fmt: skip
def test_the_best_sentence_of_a_passage_is_found_in_any_passage(passage, found):
    assert find_best_sentence("Who made honey?", passage) == found


THINGS = [("dog", "hound"), ("cat", "feline"), ("car", "vehicle"), ("sea", "ocean"), ("rock", "stone"), ("baby", "infant")]


def test_an_evaluation_ranks_all_passages_for_the_questions_of_the_test_split(monkeypatch):
    """No word in common: BM25 is blind, and the towers are right by what they have learned. Checked against a loop."""
    rows = [(f"Where is a {a} number {i} ?", f"One {b} is {i} here .") for a, b in THINGS for i in range(5)]
    data = {"question": [q for q, _ in rows], "passage": [p for _, p in rows], "negative": [p for _, p in rows[1:] + rows[:1]]}
    trained = nearfar.fit("dpr", data=data, **SMALL, pooling="mean", dropout=0.0, steps=60, batch_size=8, lr=2e-2)
    found = measure_model(trained, data)
    bm25, before, after = found.table.results
    passages = list(dict.fromkeys(p for _, p in rows))
    test = [(q, found.splits.test.get_strings([i], "passage")[0]) for i, q in enumerate(found.splits.test.get_strings(column="question"))]
    scores = encode_questions(trained, [q for q, _ in test]) @ trained.encode(passages).T
    ranks = [1 + int((row > row[passages.index(p)]).sum()) for row, (_, p) in zip(scores, test, strict=True)]
    assert after["top1"] == pytest.approx(np.mean([r <= 1 for r in ranks]))
    assert after["top5"] == pytest.approx(np.mean([r <= 5 for r in ranks]))
    assert after["mrr"] == pytest.approx(np.mean([1 / r for r in ranks]))
    assert after["mrr"] > before["mrr"]
    assert bm25["baseline"]
    assert before["baseline"]
    assert not after["baseline"]
    assert found.test_features.shape == found.untrained_features.shape == (len(test), after["width"])
    monkeypatch.setitem(sys.modules, "bm25s", None)
    without = measure_model(trained, data).table
    assert [row["representation"] for row in without.results] == ["untrained towers", "trained towers"]
    assert "nearfar[search]" in without.render()


def test_a_question_is_right_with_any_passage_that_answers_it_anywhere():
    train = build_texts({"question": ["a?", "b?"], "passage": ["one", "two"], "negative": ["six", "one"]}, "train")
    test = build_texts({"question": ["a?", "a?", "c?"], "passage": ["three", "three", "two"]}, "test")
    asked = build_questions(train, test, RandomKey(0))
    assert sorted(asked.passages) == ["one", "six", "three", "two"]
    right = {question: {asked.passages[row] for row in rows} for question, rows in zip(asked.questions, asked.gold, strict=True)}
    assert right == {"a?": {"one", "three"}, "c?": {"two"}}


def test_of_equals_a_trained_passage_is_found_no_sooner_than_another():
    """Five passages share a question's only known word: whoever ranks them by it is right in one of five, in whatever split they are."""
    rows = [{"question": f"tell topic{i % 40} ask{i}", "passage": f"topic{i % 40} say{i} noted"} for i in range(200)]
    train, test = ({name: [row[name] for row in part] for name in rows[0]} for part in (rows[:160], rows[160:]))
    top1, first = [], []
    for seed in range(10):
        asked = build_questions(build_texts(train, "train"), build_texts(test, "test"), RandomKey(seed))
        top1 += [score_retriever(asked, LexicalRetriever(build_bm25(asked.passages)))["top1"]]
        collapsed = build_index(np.ones((200, 4), dtype=np.float32), None, None, metric="dot", index_type="exact")
        hits = collapsed.search(np.ones((40, 4), dtype=np.float32), 20)
        first += [float(asked.is_gold(hits.rows).any(1).mean())]
    assert np.mean(top1) == pytest.approx(1 / 5, abs=0.06)
    assert np.mean(first) == pytest.approx(20 / 200, abs=0.06), "vectors that are all alike find by chance"


def test_the_command_line_trains_on_squad_and_measures(tmp_path, capsys):
    articles = []
    for i in range(100, 112):
        context, answer = f"Number {i} is near {i + 1}.", {"text": str(i + 1), "answer_start": 19}
        asked = [{"question": f"What is near {i}, part {j}?", "answers": [answer]} for j in range(3)]
        articles.append({"title": str(i), "paragraphs": [{"context": context, "qas": asked}]})
    (tmp_path / "squad.json").write_text(json.dumps({"data": articles}))
    flags = ["--encoder", "bag", "--vocab-size", "300", "--steps", "4", "--batch-size", "8", "--device", "cpu", "-q"]
    run, vectors = str(tmp_path / "run"), str(tmp_path / "v.npy")
    assert main(["fit", "dpr", "--data", str(tmp_path / "squad.json"), "--out", run, *flags]) == 0
    assert main(["fit", "--resume", run, "-q"]) == 0
    assert main(["eval", run, "--json", "-q"]) == 0
    table = json.loads(capsys.readouterr().out)
    found = {(row["suite"], row["system"], row["metric"]): row["value"] for row in table["rows"]}
    assert list(dict.fromkeys(system for _, system, _ in found)) == ["BM25", "untrained towers", "trained towers"]
    assert (table["protocol"]["questions"], table["protocol"]["passages"]) == (6, 12)
    assert found["retrieval", "BM25", "top5"] == 1, "the number that is asked about stands in two passages"
    assert main(["embed", run, "--data", str(tmp_path / "squad.json"), "--out", vectors, "-q"]) == 0
    assert np.load(vectors).shape[0] == 36
    assert main(["report", run, "-q"]) == 0
    assert main(["fit", "dpr", "--data", "docstrings", "--out", str(tmp_path / "no"), *flags]) == 2
    assert "question and passage" in capsys.readouterr().err
