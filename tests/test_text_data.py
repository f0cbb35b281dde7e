"""Texts from every kind of file, their splits and names; broken rows are named by file and line."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from nearfar.core import UsageError
from nearfar.data import load_texts
from nearfar.data.samples.docstrings import make_docstring_pairs, make_docstring_triples, make_docstrings, split_sentences
from nearfar.data.text.load import load_all_texts
from nearfar.data.text.readers import BrokenRow

ROWS = [("a cat", "the cat", "a dog"), ('he said "no, no"', "he, refused", "ünïcode is fine"), ("third\tone", "3", "three")]


def write_table(path, rows=ROWS, header=("anchor", "positive", "negative")):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(header)}), path)
    else:
        with open(path, "w", newline="") as f:
            csv.writer(f).writerows([header, *rows])
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_tables_give_the_strings_that_were_written(tmp_path, suffix):
    found = load_all_texts(write_table(tmp_path / f"table{suffix}")).train
    assert found.columns == ("anchor", "positive", "negative")
    for i, column in enumerate(found.columns):
        assert found.get_strings(column=column) == [row[i] for row in ROWS]
    assert found.labels is None
    assert found.name(1) == f"table{suffix}, line {3 if suffix == '.csv' else 2}"


def test_tsv_has_no_quotes(tmp_path):
    (tmp_path / "t.tsv").write_text('sentence\tlabel\nan "odd mark\tyes\nplain\tno\n')
    found = load_all_texts(tmp_path / "t.tsv").train
    assert found.get_strings() == ['an "odd mark', "plain"]
    assert [found.classes[y] for y in found.labels] == ["yes", "no"]


def test_columns_can_be_named(tmp_path):
    path = write_table(tmp_path / "t.csv", [("x", "one text", "5"), ("y", "other text", "2.5")], ("kind", "body", "gold"))
    with pytest.raises(UsageError, match="has the columns kind, body, gold: name the text columns"):
        load_all_texts(path)
    found = load_all_texts(path, "body,label=kind,score=gold").train
    assert found.get_strings() == ["one text", "other text"]
    assert found.classes == ("x", "y")
    assert found.scores.tolist() == [5.0, 2.5]
    assert found.drop_labels().scores is None
    with pytest.raises(UsageError, match=r"no column 'bdy'\. Did you mean 'body'"):
        load_all_texts(path, "bdy")
    with pytest.raises(UsageError, match="'labl' is not a role"):
        load_all_texts(path, "body,labl=kind")


@pytest.mark.parametrize(
    ("name", "content", "place", "why"),
    [
        ("a.csv", "text,label\nfine,x\nbroken\nfine,y\n", "a.csv, line 3", "1 values, but 2 columns"),
        ("a.jsonl", '{"text": "fine"}\n{"text": \n{"text": "too"}\n', "a.jsonl, line 2", "not JSON"),
        ("b.jsonl", '{"text": "fine"}\n{"other": "x"}\n{"text": "too"}\n', "b.jsonl, line 2", "has no 'text'"),
        ("c.jsonl", '{"text": "fine"}\n{"text": 7}\n{"text": "too"}\n', "c.jsonl, line 2", "not a text but int"),
        ("d.jsonl", '{"text": "fine"}\n[1]\n{"text": "too"}\n', "d.jsonl, line 2", "not a JSON object"),
        ("b.csv", "sentence1,sentence2,score\na,b,1\nc,d,high\ne,f,0\n", "b.csv, line 3", "'score' is not a number: 'high'"),
        ("c.csv", "text\nfine\n  \ntoo\n", "c.csv, line 3", "the column 'text' is empty"),
        ("d.csv", "text,label\nfine,x\nwho knows, \ntoo,y\n", "d.csv, line 3", "has no 'label'"),
        (
            "e.jsonl",
            '{"text": "fine", "label": 1}\n{"text": "so", "label": NaN}\n{"text": "too", "label": 2}\n',
            "e.jsonl, line 2",
            "has no 'label'",
        ),
        ("a.txt", b"fine\n\xff\xfe broken\ntoo\n", "a.txt, line 2", "not UTF-8"),
    ],
)
def test_broken_rows_are_named_or_left_out(tmp_path, name, content, place, why):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BrokenRow, match=f"{place}: .*{why}.*--on-error skip"):
        load_all_texts(path)
    found = load_all_texts(path, on_error="skip").train
    assert len(found) == 2
    assert len(found.skipped) == 1
    assert place in found.skipped[0]


@pytest.mark.parametrize(
    ("suffix", "mark", "name"), [("csv", ";", "';'"), ("csv", "\t", "a tab"), ("tsv", "|", "'|'"), ("tsv", ",", "','")]
)
def test_a_table_with_another_separator_is_refused(tmp_path, suffix, mark, name):
    """All columns would be one, and its texts would hold the labels."""
    (tmp_path / f"a.{suffix}").write_text(f"text{mark}label\nfine{mark}x\ntoo{mark}y\n")
    with pytest.raises(UsageError, match=re.escape(f"with {name} in its name")):
        load_all_texts(tmp_path / f"a.{suffix}")


def test_a_file_of_articles_keeps_the_boundaries_of_documents(tmp_path):
    (tmp_path / "wiki.txt").write_text("# First\nOne.\nTwo.\n\n# Second\nThree.\n# not a title\n\n\n\n# Third\n\n# Fourth\nFour.\n")
    found = load_all_texts(tmp_path / "wiki.txt").train
    assert found.get_strings() == ["One.", "Two.", "Three.", "# not a title", "Four."]
    assert found.name(2) == "wiki.txt, line 6"
    one, two, three, more, four = found.document_ids.tolist()
    assert one == two != three == more != four


def test_plain_lines_may_begin_with_anything(tmp_path):
    (tmp_path / "plain.txt").write_text("\ufefffirst\n# second\n\n# third")
    assert load_all_texts(tmp_path / "plain.txt").train.get_strings() == ["first", "# second", "# third"]


def test_test_documents_are_whole(tmp_path):
    (tmp_path / "t.txt").write_text("\n\n".join(f"Document {i}, one.\nDocument {i}, two." for i in range(20)))
    splits = load_texts(tmp_path / "t.txt", seed=3)
    assert len(splits.test) == 8
    assert not set(splits.train.document_ids) & set(splits.test.document_ids)
    again = load_texts(tmp_path / "t.txt", seed=9, test_ids=splits.test_ids)
    assert again.test.get_strings() == splits.test.get_strings()
    assert again.train.fingerprint == splits.train.fingerprint


def test_folders_bring_splits_or_classes(tmp_path):
    both = tmp_path / "both"
    both.mkdir()
    write_table(both / "train.csv", [("a", "x"), ("b", "y"), ("c", "z")], ("text", "label"))
    write_table(both / "test.csv", [("d", "z"), ("e", "y")], ("text", "label"))
    splits = load_texts(both)
    assert splits.test_ids is None
    assert [splits.test.classes[y] for y in splits.test.labels] == ["z", "y"]
    assert [splits.train.classes[y] for y in splits.train.labels] == ["x", "y", "z"]
    for kind in ("good", "bad"):
        (tmp_path / "kinds" / kind).mkdir(parents=True)
        (tmp_path / "kinds" / kind / "a.txt").write_text(f"{kind} one\n{kind} two\n")
    found = load_all_texts(tmp_path / "kinds").train
    assert [(found.classes[y], text) for y, text in zip(found.labels, found.get_strings(), strict=True)] == [
        ("bad", "bad one"), ("bad", "bad two"), ("good", "good one"), ("good", "good two"),
    ]  # fmt: skip
    assert found.name(0) == "bad/a.txt, line 1"


def test_texts_in_memory():
    found = load_all_texts((["a", "b", "c"], [1, 0, 1])).train
    assert found.get_strings([2, 0]) == ["c", "a"]
    assert found.labels.tolist() == [1, 0, 1]
    assert found.name(1) == "row 1"
    pairs = load_all_texts({"anchor": ["a", "b"], "positive": ["c", "d"]}).train
    assert pairs.get_strings(column="positive") == ["c", "d"]
    with pytest.raises(UsageError, match="entry 1 is not a string but int"):
        load_all_texts(["a", 1])
    with pytest.raises(UsageError, match="differ in length: a 1, b 2"):
        load_all_texts({"a": ["x"], "b": ["y", "z"]})
    with pytest.raises(UsageError, match="at least 2 are needed"):
        load_texts(["alone"])


def test_subsets_keep_names_and_fingerprints_tell_texts_apart():
    a, b = load_all_texts(["one", "two", "three"]).train, load_all_texts(["onet", "wo", "three"]).train
    assert a.fingerprint != b.fingerprint
    assert a.drop_labels().fingerprint == a.fingerprint
    part = a.subset([2, 1])
    assert part.name(0) == "row 2"
    assert part.get_strings() == ["three", "two"]
    assert part.fingerprint != a.subset([1, 2]).fingerprint


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'docstrings'"):
        load_all_texts("docstring")
    (tmp_path / "x.pdf").write_text("x")
    with pytest.raises(UsageError, match=r"ends in \.txt or \.csv"):
        load_all_texts(tmp_path / "x.pdf")
    with pytest.raises(UsageError, match="there is no file"):
        load_all_texts(tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UsageError, match="there is no text in"):
        load_all_texts(tmp_path / "empty.txt")
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(UsageError, match=r"cannot read .*no\.parquet"):
        load_all_texts(tmp_path / "no.parquet")


def saved_to_disk(folder, shards, names):
    """A folder as `datasets` writes it."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    files = [f"data-{i:05d}-of-{len(shards):05d}.arrow" for i in range(len(shards))]
    for file, rows in zip(files, shards, strict=True):
        table = pa.table({"text": [text for text, _ in rows], "label": pa.array([label for _, label in rows], pa.int64())})
        with pa.OSFile(str(folder / file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file} for file in files], "_fingerprint": "x"}))
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": names, "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_folder_of_hugging_face_datasets_is_read_with_its_splits_and_classes(tmp_path):
    saved_to_disk(tmp_path / "d" / "train", [[("one", 1), ("two", 0)], [("three", 1)]], ["dull", "bright"])
    saved_to_disk(tmp_path / "d" / "test", [[("four", 0)]], ["dull", "bright"])
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = load_all_texts(tmp_path / "d")
    assert found.train.get_strings() == ["one", "two", "three"]
    assert [found.train.classes[i] for i in found.train.labels] == ["bright", "dull", "bright"]
    assert found.test.get_strings() == ["four"]
    assert found.test.classes == found.train.classes
    assert load_all_texts(tmp_path / "d" / "train").train.get_strings() == ["one", "two", "three"]


def test_a_damaged_folder_of_hugging_face_datasets_is_named(tmp_path):
    saved_to_disk(tmp_path / "d", [[("one", 0), ("two", 0)]], ["dull"])
    file = tmp_path / "d" / "data-00000-of-00001.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"cannot read .*data-00000-of-00001\.arrow"):
        load_all_texts(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text('{"_data_files": [{"filename": "../other.arrow"}]}')
    with pytest.raises(UsageError, match="not the name of a file in that folder"):
        load_all_texts(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text("{}")
    with pytest.raises(UsageError, match="no valid '_data_files'"):
        load_all_texts(tmp_path / "d")


def test_docstrings_are_sentences_of_modules_in_order():
    data = make_docstrings()
    assert len(data) > 3000
    assert len(data.classes) >= 20
    assert len(set(data.get_strings())) == len(data)
    assert all(np.diff(data.document_ids) >= 0)
    assert make_docstrings().fingerprint == data.fingerprint
    text = "One line\ngoes on. Then e.g. this one! Right?\n\n    >>> code.\n\n- a list."
    assert split_sentences(text) == ["One line goes on.", "Then e.g. this one!", "Right?"]


def test_docstring_triples_are_neighbours_and_strangers():
    data, place = make_docstring_triples(), {}
    sentences = make_docstrings()
    place = dict(zip(sentences.get_strings(), zip(sentences.labels, sentences.document_ids, strict=True), strict=True))
    for anchor, positive, negative in zip(*(data.get_strings(range(300), c) for c in data.columns), strict=True):
        assert place[anchor] == place[positive]
        assert place[anchor][0] == place[negative][0]
        assert place[anchor][1] != place[negative][1]
    pairs = make_docstring_pairs()
    assert len(pairs) == 2 * len(data)
    assert pairs.labels.mean() == 0.5
    assert pairs.get_strings([0], "sentence2") == data.get_strings([0], "positive")
    assert pairs.classes[pairs.labels[0]] == "same"
    assert pairs.scores[0] == 1


def test_a_field_may_be_a_whole_document(tmp_path):
    long = "word " * 40_000
    assert load_all_texts(write_table(tmp_path / "t.csv", [("a", long, "b")])).train.get_strings(column="positive") == [long]
