"""Questions and their passages: every layout, broken rows by name, pairs to train on, and one row of tokens for both texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.core import UsageError
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.data.questions.load import load_questions
from nearfar.data.questions.question_passage_pairs import mark_answers, tokenize_pairs
from nearfar.data.samples.docstring_questions import make_docstring_questions
from nearfar.data.text.load import load_texts
from nearfar.data.text.readers import BrokenRow

NORMANS = "The Normans gave their name to Normandy, a region in France."
ROLLO = "Their leader Rollo swore fealty. Rollo was a Viking."


def squad(*articles) -> dict:
    return {"version": "1.1", "data": [{"title": f"T{i}", "paragraphs": list(a)} for i, a in enumerate(articles)]}


def paragraph(context: str, *asked: tuple[str, str]) -> dict:
    qas = [{"id": q, "question": q, "answers": [{"text": a, "answer_start": context.find(a)}] if a else []} for q, a in asked]
    return {"context": context, "qas": qas}


@pytest.fixture
def squad_file(tmp_path) -> Path:
    file = tmp_path / "small.json"
    content = squad([paragraph(NORMANS, ("Where is Normandy?", "France"))], [paragraph(ROLLO, ("Who led?", "Rollo"), ("Who sang?", ""))])
    file.write_text(json.dumps(content))
    return file


def test_squad_is_read_whole(squad_file):
    found = load_questions(squad_file)
    assert found.questions == ("Where is Normandy?", "Who led?", "Who sang?")
    assert found.passages == (NORMANS, ROLLO)
    assert found.gold == ((0,), (1,), ())
    assert found.answers == (("France",), ("Rollo",), ())
    assert found.question_documents.tolist() == [0, 1, -1]
    assert found.subset([1]).passages == found.passages


def test_found_marks_gold_rows_and_nothing_for_minus_one(squad_file):
    rows = np.array([[1, 0], [1, -1], [0, 1]])
    assert load_questions(squad_file).is_gold(rows).tolist() == [[False, True], [True, False], [False, False]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: d["data"][1]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start=2),
            ["data[1].paragraphs[0].qas[0]", "'Rollo'", "2"],
        ),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"][0].pop("question"), ["data[0].paragraphs[0].qas[0]", "'question'"]),
        (lambda d: d["data"][0]["paragraphs"][0].update(context=3), ["data[0].paragraphs[0]", "'context'"]),
    ],
)
def test_a_broken_entry_of_squad_is_named_or_left_out(squad_file, change, words):
    content = json.loads(squad_file.read_text())
    change(content)
    squad_file.write_text(json.dumps(content))
    with pytest.raises(UsageError) as e:
        load_questions(squad_file)
    assert all(word in str(e.value) for word in ["small.json", *words])
    left = load_questions(squad_file, on_error="skip")
    assert len(left) == 2
    assert len(left.skipped) == 1


@pytest.mark.parametrize("text", ["[]", '{"data": 3}', '{"data": [{}]}', "{", "\xff"])
def test_what_is_not_squad_is_refused_in_one_message(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"x\.json"):
        load_questions(tmp_path / "x.json")


def test_judged_sentences_are_grouped_by_question(tmp_path):
    (tmp_path / "t.csv").write_text('qtext,label,atext\nWho?,1,"Rollo, he"\nWho?,0,Nobody\nWhere?,0,Rome\nWhere?,0,Nobody\n')
    found = load_questions(tmp_path / "t.csv")
    assert found.questions == ("Who?", "Where?")
    assert found.passages == ("Rollo, he", "Nobody", "Rome")
    assert found.gold == ((0,), ())
    assert found.candidates == ((0, 1), (2, 1))


def test_a_table_of_ones_own_takes_one_or_many(tmp_path):
    rows = [
        {"question": "Who?", "passages": [ROLLO, "Rollo again."], "answers": ["Rollo", "he"], "negative": NORMANS},
        {"question": "Where?", "passage": NORMANS, "answer": "France"},
        {"question": "Who?", "passage": "A third."},
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_questions(tmp_path / "own.jsonl")
    assert found.gold == ((0, 1, 3), (2,))
    assert found.answers == (("Rollo", "he"), ("France",))
    assert found.candidates == ((0, 1, 2), ())


@pytest.mark.parametrize(
    ("lines", "line", "why"),
    [
        ('{"question": "Q", "passage": "P"}\n{"question": "Q"}\n', 2, "passage"),
        ('{"question": "Q", "passage": "P"}\n\n{"question": " ", "passage": "P"}\n', 3, "question"),
        ('{"question": "Q", "passages": ["P", 3]}\n{"question": "Q", "passage": "P"}\n', 1, "passages"),
        ('{"question": "Q", "passage": "P"}\nnonsense\n', 2, "JSON"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path, lines, line, why):
    (tmp_path / "own.jsonl").write_text(lines)
    with pytest.raises(BrokenRow, match=rf"own\.jsonl, line {line}: .*{why}"):
        load_questions(tmp_path / "own.jsonl")
    assert len(load_questions(tmp_path / "own.jsonl", on_error="skip").skipped) == 1


def test_a_wrong_label_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("qtext,label,atext\nWho?,2,he\n")
    with pytest.raises(BrokenRow, match=r"t\.csv, line 2: 'label' must be 0 or 1, got '2'"):
        load_questions(tmp_path / "t.csv")
    with pytest.raises(UsageError, match="no such file"):
        load_questions(tmp_path / "none.json")


def test_pairs_hold_one_row_for_each_gold_passage(squad_file):
    texts = load_questions(squad_file).to_training_texts()
    assert texts.columns == ("passage", "question", "answer")
    assert texts.get_strings(column="question") == ["Where is Normandy?", "Who led?"]
    mined = load_questions(squad_file).to_training_texts([(1,), (), (0,)])
    assert mined.get_strings(column="negative") == [ROLLO]
    with pytest.raises(UsageError, match="negative"):
        load_questions(squad_file).to_training_texts([(), (), ()])


def test_a_split_keeps_articles_whole(tmp_path):
    articles = [[paragraph(f"Passage {i}.{j}.", (f"What is {i}.{j}?", "Passage")) for j in range(3)] for i in range(10)]
    (tmp_path / "a.json").write_text(json.dumps(squad(*articles)))
    splits = load_texts(tmp_path / "a.json")
    assert len(splits.test) == 6
    assert not set(splits.train.document_ids) & set(splits.test.document_ids)


def test_docstrings_give_questions_whose_answer_stands_in_the_passage():
    texts = make_docstring_questions()
    passages, answers, negatives = (texts.get_strings(column=name) for name in ("passage", "answer", "negative"))
    assert len(texts) > 500
    assert all(a in p for a, p in zip(answers, passages, strict=True))
    assert sum(p == n for p, n in zip(passages, negatives, strict=True)) < len(texts) / 100
    assert texts.fingerprint == make_docstring_questions().fingerprint


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([NORMANS, ROLLO, "Who led them? Where?"], 400)


def test_joined_rows_lead_back_to_the_letters(tokenizer):
    joined = tokenize_pairs(tokenizer, ["Who led?", "Where is it?"], [ROLLO, NORMANS], 64)
    for i, passage in enumerate((ROLLO, NORMANS)):
        places = joined.passage_offsets[i][joined.passage_mask[i]]
        assert "".join(passage[a:b] for a, b in places.tolist()) == passage
    assert int(joined.ids[0, 0]) == tokenizer.special_ids["cls"]
    assert (joined.ids == tokenizer.special_ids["sep"]).sum(1).tolist() == [2, 2]
    assert not joined.passage_mask[joined.ids == tokenizer.special_ids["sep"]].any()


def test_every_occurrence_of_an_answer_is_marked_and_a_cut_one_is_not(tokenizer):
    joined = tokenize_pairs(tokenizer, ["Who?"], [ROLLO], 64)
    begin, end = mark_answers(joined, [ROLLO], ["Rollo"])
    assert begin.sum() == end.sum() == 2
    for a, b in zip(begin[0].nonzero()[:, 0], end[0].nonzero()[:, 0], strict=True):
        first, last = int(joined.passage_offsets[0, a, 0]), int(joined.passage_offsets[0, b, 1])
        assert ROLLO[first:last].strip() == "Rollo"
    short = tokenize_pairs(tokenizer, ["Who?"], [ROLLO], 12)
    assert short.ids.shape == (1, 16)
    assert not mark_answers(short, [ROLLO], ["Viking"])[0].any()
    assert not torch.stack(mark_answers(joined, [ROLLO], ["Harald"])).any()


def test_a_long_question_leaves_room_for_the_passage(tokenizer):
    joined = tokenize_pairs(tokenizer, ["Who led " * 100], [ROLLO + NORMANS], 32)
    assert joined.passage_mask.sum() == 16
    assert int(joined.ids[0, 15]) == tokenizer.special_ids["sep"]


def test_xquad_and_trec_qa_as_they_lie_on_the_disk(data_folder):
    xquad, trec = data_folder / "xquad" / "xquad.en.json", data_folder / "trecqa" / "test.csv"
    if not xquad.exists() or not trec.exists():
        pytest.skip("XQuAD and TREC-QA are not here")
    found = load_questions(xquad)
    assert (len(found), len(found.passages), len(set(found.question_documents.tolist()))) == (1190, 240, 48)
    judged = load_questions(trec)
    assert (len(judged), sum(map(len, judged.gold)), sum(map(len, judged.candidates))) == (95, 284, 1517)
    assert sum(0 < len(g) < len(c) for g, c in zip(judged.gold, judged.candidates, strict=True)) == 68
