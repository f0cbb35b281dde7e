"""What all data have in common: digests that stored runs know them by, subsets, and labels that can be taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nearfar.core import NearfarError
from nearfar.data.audio.dataset import Sounds, SoundStore
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.named_samples import get_vocabulary
from nearfar.data.common.numbered_lines import read_numbered_lines
from nearfar.data.frames.dataset import Frames
from nearfar.data.graphs.dataset import Graphs, Nodes, build_graph_store
from nearfar.data.image_text.dataset import CaptionedImages, attach_captions
from nearfar.data.images.dataset import Images
from nearfar.data.text.dataset import Texts, TextStore
from nearfar.data.triples.load import load_triples
from nearfar.data.walks.dataset import build_walk_graph
from nearfar.data.words.dataset import build_corpus

IDS = np.array([2, 0, 1])
LABELS = np.array([1, 0, 1])
LABELLED = {"labels": LABELS, "classes": ("a", "b"), "source": "test"}
PIXELS = InMemoryImageStore((torch.arange(4 * 3 * 2 * 2) % 256).to(torch.uint8).view(4, 3, 2, 2))
LINKS = np.array([[0, 1, 3], [1, 2, 4]])


def images() -> Images:
    return Images(PIXELS, IDS, **LABELLED)


def sounds() -> Sounds:
    return Sounds(SoundStore(torch.arange(-12, 12).to(torch.int16).view(4, 6), 8000), IDS, **LABELLED)


def texts() -> Texts:
    store = TextStore({"text": ["one", "two", "three", "four"]}, document_ids=np.array([0, 0, 1, 1]))
    return Texts(store, IDS, scores=np.array([0.5, 1, 2], dtype=np.float32), **LABELLED)


def captioned() -> CaptionedImages:
    every = attach_captions(Images(PIXELS, np.arange(4)), [["one"], ["two", "too"], ["three"], ["four"]])
    return replace(every, images=images())


def frames() -> Frames:
    values, episode = np.arange(6).reshape(3, 2), np.array([0, 0, 1])
    return Frames(PIXELS, IDS, source="test", episode=episode, values=values, variables=("x", "y"))


def nodes() -> Nodes:
    return Nodes(build_graph_store(np.eye(5, dtype=np.float32), LINKS, np.array([0, 5])), IDS, **LABELLED)


def graphs() -> Graphs:
    return Graphs(build_graph_store(np.eye(5, dtype=np.float32), LINKS, np.array([0, 2, 3, 5])), IDS, **LABELLED)


ROWS = [images, sounds, texts, captioned, frames, nodes, graphs]
TABLES = {
    "corpus": lambda: build_corpus([["a", "b", "a"], ["c", "b"]], 1),
    "graph": lambda: build_walk_graph(["a", "b", "c"], np.array([0, 1]), np.array([1, 2])),
    "triples": lambda: load_triples([("a", "knows", "b"), ("b", "knows", "c"), ("c", "knows", "a")], test_ids=[]).train,
}
"""Data whose samples are names: words, nodes, entities."""

DIGESTS = {
    "images": "c5d3b364ff036e4616c742040d39e458",
    "sounds": "1d9c5dc5bfa49ae58448532cfe4b760b",
    "texts": "8769095895f7160318302a8bcd045928",
    "captioned": "477e832d4a7b3972b0600bbfccc8930a",
    "frames": "c5d3b364ff036e4616c742040d39e458",
    "nodes": "a3fa209772b5e66fcb6ce3f32e7d063e",
    "graphs": "2c085402e6be3acd593d4bed81315bb9",
    "corpus": "918ff32fb39610ca57406357cdd9ca73",
    "graph": "18ef72de86364a8df791316dea808fca",
    "triples": "c747c3d2662068968a9d886519847bea",
}
"""As they stand in checkpoints: a change of one of them would cut runs off from their data."""


@pytest.mark.parametrize(("name", "data"), [*((make.__name__, make) for make in ROWS), *TABLES.items()])
def test_the_digests_that_stored_runs_hold_do_not_change(name, data):
    assert data().fingerprint == DIGESTS[name]
    assert data().drop_labels().fingerprint == DIGESTS[name], "labels are no part of it"


@pytest.mark.parametrize("make", ROWS)
def test_a_subset_has_the_rows_that_were_asked_for_and_shares_the_rest(make):
    whole = make()
    part = whole.subset([2, 0])
    assert [part.name(i) for i in range(len(part))] == [whole.name(2), whole.name(0)]
    assert len(whole.subset([])) == 0
    rows = part.images if isinstance(part, CaptionedImages) else part
    every = whole.images if isinstance(whole, CaptionedImages) else whole
    assert rows.store is every.store
    for name in every.per_sample_fields:
        values = getattr(every, name)
        assert (getattr(rows, name) is None) if values is None else np.array_equal(getattr(rows, name), values[[2, 0]]), name
    assert whole.subset(range(len(whole))).fingerprint == whole.fingerprint != part.fingerprint


@pytest.mark.parametrize("make", ROWS)
def test_a_method_is_shown_nothing_that_it_must_not_see(make):
    hidden = make().drop_labels()
    assert (hidden.labels, hidden.classes) == (None, ())
    assert getattr(hidden, "scores", None) is None
    assert getattr(hidden, "values", None) is None
    assert getattr(hidden, "variables", ()) == ()


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_names_have_their_number_and_travel_with_a_run(make):
    data = make()
    assert data.names == ("a", "b", "c") == tuple(data.name(i) for i in range(len(data)))
    assert data.read([2, 0]).tolist() == [2, 0]
    assert get_vocabulary(data.tokenizer) == {"a": 0, "b": 1, "c": 2}
    assert (data.labels, data.classes, data.skipped) == (None, (), ())


def test_a_line_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\ntwo".encode())
    assert list(read_numbered_lines(path)) == [(1, "one"), (2, ""), (3, "two")]
    path.write_bytes(b"one\nt\xffo\n")
    with pytest.raises(NearfarError, match=r"a\.txt, line 2: not UTF-8 \(.* at byte 2\)"):
        list(read_numbered_lines(path))
    path.write_bytes("one".encode("utf-16"))
    with pytest.raises(NearfarError, match=r"line 1: a zero byte"):
        list(read_numbered_lines(path))


def test_data_that_are_not_there_are_named_with_those_that_are():
    said = str(build_missing_data_error("digit", ["digits", "docstrings"]))
    assert said == "no data 'digit': there is no such file, folder or name (digits, docstrings). Did you mean 'digits'?"
