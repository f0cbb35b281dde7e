"""`nearfar ask`: from passages to answers on the command line, mistakes in one line, and BM25 that follows the index."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import nearfar
from nearfar.cli.commands.ask import format_passage
from nearfar.cli.main import main
from nearfar.data.text.readers import build_texts
from nearfar.index import open_index
from nearfar.index.bm25 import load_bm25
from nearfar.index.index_folder import lock_index_folder
from nearfar.index.passage_reader import Span
from nearfar.index.question_answering import Passage

PASSAGES = [
    "Rollo led the Vikings to Normandy.",
    "Honey is made by bees in summer.",
    "The duke of Normandy conquered England in 1066.",
    "Ships were built of oak in Norway.",
]
QUESTION = "Who conquered England in 1066?"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A retriever, a reader and an index."""
    folder = tmp_path_factory.mktemp("ask")
    asked = {"question": ["Who led?", "Who makes it?", "Who conquered?", "What of?"] * 4, "passage": PASSAGES * 4}
    data = build_texts(asked | {"answer": ["Rollo", "bees", "The duke of Normandy", "oak"] * 4}, "passages")
    small = {"vocab_size": 300, "max_length": 32, "batch_size": 8, "device": "cpu"}
    nearfar.fit("dpr", data=data, encoder="bag", pooling="mean", steps=20, out=folder / "run", **small)
    nearfar.fit("dpr-reader", data=data, encoder="bert-tiny", steps=4, out=folder / "reader", **small)
    (folder / "passages.jsonl").write_text("\n".join(json.dumps({"passage": p}) for p in PASSAGES))
    command = [
        "index",
        str(folder / "run"),
        "--data",
        str(folder / "passages.jsonl"),
        "--out",
        str(folder / "index"),
        "--metric",
        "dot",
        "-q",
    ]
    assert main(command) == 0
    return folder


def ask(made, capsys, *flags, question=QUESTION, index="index"):
    capsys.readouterr()
    code = main(["ask", str(made / index), question, "--device", "cpu", *flags])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_question_is_answered_with_passages(made, capsys):
    code, out, _ = ask(made, capsys, "--k", "2")
    assert code == 0
    assert [line[:2] for line in out.splitlines()[::2]] == ["1.", "2."]
    assert out.splitlines()[1].strip() == PASSAGES[2]


@pytest.mark.parametrize("how", ["hybrid", "dense", "words"])
def test_json_says_all_and_a_reader_marks_spans(made, capsys, how):
    code, out, _ = ask(made, capsys, "--how", how, "--reader", str(made / "reader"), "--json")
    found = json.loads(out)
    assert (code, found["question"], found["how"]) == (0, QUESTION, how)
    rows = sorted(p["row"] for p in found["passages"])
    assert rows == ([2] if how == "words" else [0, 1, 2, 3]), "by words only what has one in common"
    scores = [p["score"] for p in found["passages"]]
    assert scores == sorted(scores, reverse=True)
    assert found["answer"] == found["passages"][0]["span"]["text"]
    for passage in found["passages"]:
        span = passage["span"]
        assert passage["text"] == PASSAGES[passage["row"]]
        assert passage["text"][span["start"] : span["end"]] == span["text"] != ""


def test_the_answer_is_printed_and_marked(made, capsys):
    _, out, _ = ask(made, capsys, "--reader", str(made / "reader"), "--k", "1")
    answer = out.splitlines()[0].removeprefix("answer: ")
    assert f"»{answer}«" in out


def test_words_follow_what_is_added_and_deleted(made, capsys, tmp_path):
    shutil.copytree(made / "index", tmp_path / "index")
    _, first, _ = ask(tmp_path, capsys, "--how", "words", "--json", "--k", "1")
    assert json.loads(first)["passages"][0]["row"] == 2
    assert (tmp_path / "index" / "bm25" / "manifest.json").exists()
    opened = open_index(tmp_path / "index")
    opened.delete(2)
    _, after, _ = ask(tmp_path, capsys, "--how", "words", "--json")
    found = json.loads(after)["passages"]
    assert {p["row"] for p in found} <= {0, 1, 3}
    assert all(p["score"] > 0 for p in found)
    (tmp_path / "index" / "bm25" / "manifest.json").write_text("nonsense")
    code, _, _ = ask(tmp_path, capsys, "--how", "words")
    assert code == 0, "a damaged copy is made anew"
    assert len(load_bm25(tmp_path / "index")) == 3


def test_words_are_searched_while_another_process_stores_them(made, capsys, tmp_path):
    shutil.copytree(made / "index", tmp_path / "index")
    assert ask(tmp_path, capsys, "--how", "words")[0] == 0
    open_index(tmp_path / "index").delete(1)
    with lock_index_folder(tmp_path / "index" / "bm25"):
        code, out, _ = ask(tmp_path, capsys, "--how", "words", "--json", "--k", "1")
    assert (code, json.loads(out)["passages"][0]["row"]) == (0, 2)
    assert len(load_bm25(tmp_path / "index")) == 4, "the other process has not stored anything"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--k", "0"], "--k"),
        (["--how", "guess"], "hybrid"),
        (["--weight", "2"], "between 0"),
        (["--how", "words", "--weight", "0.3"], "--weight"),
        (["--reader", "{run}"], "not a reader but DPR"),
        (["--reader", "{none}"], "none"),
    ],
)
def test_mistakes_are_one_line(made, capsys, flags, word):
    named = [f.format(run=made / "run", none=made / "none") for f in flags]
    code, out, err = ask(made, capsys, *named)
    assert (code, out) == (2, "")
    assert word in err
    assert len(err.strip().splitlines()) == 1


def test_an_empty_question_a_missing_index_and_one_of_no_texts_are_refused(made, capsys, tmp_path):
    assert ask(made, capsys, question=" ")[0] == 2
    assert ask(made, capsys, index="nowhere")[0] == 2
    nearfar.index.build_index(np.eye(3, dtype=np.float32), ["a", "b", "c"], tmp_path / "plain")
    code, _, err = ask(tmp_path, capsys, "--how", "words", index="plain")
    assert code == 2
    assert "not an index of texts" in err


def test_a_long_passage_is_cut_around_its_answer():
    text = "word " * 200 + "answer here " + "more " * 200
    start = text.index("answer")
    line = format_passage(Passage(0, "p", 1.0, text, Span("answer", start, start + 6, -1.0)), on_terminal=False)
    assert "»answer«" in line
    assert line.startswith("…")
    assert line.endswith("…")
    assert len(line) < 340
    assert format_passage(Passage(0, "p", 1.0, text), on_terminal=False).startswith("word")
    assert "\x1b[1;7manswer\x1b[0m" in format_passage(Passage(0, "p", 1.0, "an answer", Span("answer", 3, 9, 0.0)), on_terminal=True)


def test_without_a_common_word_nothing_is_found(made, capsys):
    code, out, _ = ask(made, capsys, "--how", "words", question="xyzzy")
    assert (code, out.strip()) == (0, "no passage has a word in common with the question")
