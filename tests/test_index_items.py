"""What the rows of an index are, for data of every kind; which model made them; what a query may be."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from helpers import tiny_session
from image_files import noise, save
from PIL import Image

from nearfar.api.search import load_index_model
from nearfar.core import NearfarError, UsageError
from nearfar.data import load_images, load_texts
from nearfar.index import RowTable, build_index, build_row_table, identify_model, read_query
from nearfar.index.model_identity import compute_fingerprint
from nearfar.index.queries import parse_vectors
from nearfar.modalities import find_modality
from nearfar.train.model import Model


def untrained(name: str = "simclr", **changes) -> Model:
    session = tiny_session(name, **changes)
    session.net.eval()
    return Model(session.recipe, session.config, session.net, 0, torch.device("cpu"), find_modality(session.recipe.card.modality))


def test_images_of_an_array_bring_their_pictures():
    data = load_images("digits", test_ids=[]).train.subset(np.arange(5))
    items = build_row_table([data])
    shown = items.describe(range(5))
    assert [item["label"] for item in shown] == ["0", "1", "2", "3", "4"]
    assert shown[3] == {"name": "row 3", "row": 3, "label": "3"}
    for i, picture in enumerate(items.read_thumbnails(range(5))):
        assert picture is not None
        assert (np.asarray(Image.open(io.BytesIO(picture))) == data.read([i])[0, 0].numpy()).all()


def test_large_and_colourful_pictures_are_scaled_down():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 200, 200), dtype=np.uint8)
    (first, _) = build_row_table([load_images(pixels, test_ids=[]).train]).read_thumbnails([0, 1])
    assert first is not None
    picture = Image.open(io.BytesIO(first))
    assert (picture.size, picture.mode) == ((96, 96), "RGB")


def test_images_of_a_folder_bring_their_paths(tmp_path):
    for name in ("cat/a.png", "dog/b.png", "dog/c.png"):
        save(noise(1), tmp_path / name)
    data = load_images(str(tmp_path), test_ids=[]).train
    items = build_row_table([data])
    assert items.describe([2]) == [{"name": "dog/c.png", "row": 2, "label": "dog", "path": str(tmp_path / "dog/c.png")}]
    assert items.read_thumbnails([0, 1, 2]) == [None] * 3


def test_texts_bring_themselves_and_parts_follow_each_other(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    data = load_texts(str(tmp_path / "a.txt"), test_ids=[]).train
    items = build_row_table([data, load_texts(["four", "five"], test_ids=[]).train])
    assert [item["text"] for item in items.describe(range(5))] == ["one", "two", "three", "four", "five"]
    assert items.describe([2])[0]["name"] == "a.txt, line 4"
    assert items.find_rows_by_name("row 0").tolist() == [3]


def test_columns_of_items_must_be_of_one_length():
    with pytest.raises(UsageError, match="2 sample names, but 1 values of 'label'"):
        RowTable.from_columns(["a", "b"], ["x"])


def test_the_fingerprint_follows_every_weight_and_hyperparameter():
    model = untrained()
    before = compute_fingerprint(model)
    assert before == compute_fingerprint(untrained()), "the same net, built twice"
    assert before != compute_fingerprint(untrained(seed=1))
    assert before != compute_fingerprint(dataclasses.replace(model, recipe=dataclasses.replace(model.recipe, temperature=0.123)))
    last = list(model.net.parameters())[-1]
    with torch.no_grad():
        last.view(-1)[0] += 1e-3
    assert before != compute_fingerprint(model)


def test_an_index_that_names_no_run_is_searched_by_rows_and_vectors_only():
    x = np.eye(4, dtype=np.float32)
    index = build_index(x, None, None)
    query = read_query("row:2", index, lambda: load_index_model(index))
    assert (query.row, query.title) == (2, "row 2")
    assert index.search(query.vectors, 1).rows.tolist() == [[2]]
    assert read_query("2", index, lambda: load_index_model(index)).row == 2
    with pytest.raises(NearfarError, match="does not record which model"):
        read_query("some words", index, lambda: load_index_model(index))
    never_saved = build_index(x, None, None, model=identify_model(untrained()))
    with pytest.raises(NearfarError, match="never saved"):
        read_query("some words", never_saved, lambda: load_index_model(never_saved))


def test_a_question_goes_through_the_tower_of_questions():
    session = tiny_session("dpr")
    session.net.eval()
    model = Model(
        session.recipe, session.config, session.net, 0, torch.device("cpu"), find_modality("text"), tokenizer=session.data.tokenizer
    )
    passages = model.encode(["Who wrote it?", "Nobody knows."]).numpy()
    index = build_index(passages, None, None)
    asked = read_query("Who wrote it?", index, lambda: model)
    tokens = model.inputs.adapt(["Who wrote it?"])[0].read([0])
    with torch.no_grad():
        expected = session.recipe.encode(session.net, tokens, "question")
    assert asked.vectors == pytest.approx(expected.numpy(), abs=1e-5)
    assert np.abs(asked.vectors - passages[:1]).max() > 1e-3
    assert (asked.text, asked.title) == ("Who wrote it?", "Who wrote it?")


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_vectors_come_as_npy_or_as_lines_of_json(kind):
    table = np.arange(6).reshape(2, 3).astype(kind)
    file = io.BytesIO()
    np.save(file, table)
    lines = "\n".join(json.dumps(row) for row in table.tolist()) + "\n\n"
    objects = "\n".join(json.dumps({"vector": row, "id": 7}) for row in table.tolist())
    for data in (file.getvalue(), lines.encode(), objects.encode()):
        assert parse_vectors(data).tolist() == table.tolist()
    assert parse_vectors(b"[1, 2]").shape == (1, 2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no vectors came"),
        (b"\x93NUMPY garbage", "not a valid .npy file"),
        (b"[1, 2]\n[1, 2, 3]", "line 2: expected a list of 2 numbers"),
        (b"[1, 2]\nhello", "line 2: not a JSON list of numbers"),
        (b'{"id": 1}', "line 1: not a JSON list of numbers"),
        (b'["a", "b"]', "line 1: not a JSON list of numbers"),
        (b"[[1, 2]]", "line 1: not a list of numbers"),
        (b"7", "line 1: not a list of numbers"),
    ],
)
def test_broken_vectors_name_their_line(data, words):
    with pytest.raises(UsageError, match=words):
        parse_vectors(data)


def test_a_pickled_npy_is_refused():
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="is not a valid"):
        parse_vectors(file.getvalue())
