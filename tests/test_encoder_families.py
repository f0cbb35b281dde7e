"""The registry of encoders: every kind of data has one family, which names, chooses and builds its encoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nearfar.core import UsageError
from nearfar.data.common.arrays import How
from nearfar.data.common.text_rows import from_strings
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.data.graphs.dataset import Graphs, Nodes, store_of
from nearfar.data.image_text.readers import digits_captions
from nearfar.data.samples.bounce import bounce
from nearfar.data.samples.tones import tones
from nearfar.data.words.dataset import corpus_of
from nearfar.encoders import FAMILIES, Family, make_encoder, resolve_encoder

LINES = ["one text", "another text", "a third one"]
STORE = store_of(np.eye(3, dtype=np.float32), np.array([[0], [1]]), np.array([0, 3]))
DATA = {
    "frames": (bounce, "nature-small"),
    "graphs": (lambda: Graphs(STORE, np.arange(1)), "gin-3x32"),
    "nodes": (lambda: Nodes(STORE, np.arange(3)), "gcn-1x512"),
    "images": (lambda: digits_captions(How()).train.images, "convnet"),
    "sounds": (tones, "mel"),
    "texts": (lambda: from_strings({"text": LINES}, "test").tokenised(train_tokenizer(LINES, 300), 8), "bert-tiny"),
    "words": (lambda: corpus_of([["a", "b"], ["b", "c"]], 1), "lookup"),
}


@pytest.mark.parametrize(("data", "auto"), DATA.values(), ids=DATA)
def test_data_of_every_kind_belong_to_one_family_and_auto_names_an_encoder_for_them(data, auto):
    opened = data()
    sizes = opened.sizes()
    assert sum(family.mark in sizes for family in FAMILIES) == 1
    assert resolve_encoder("auto", sizes) == auto
    assert resolve_encoder("mine", sizes) == "mine"
    encoder = make_encoder(auto, sizes).eval()
    rows = encoder(opened.read(np.arange(1)))
    assert rows.shape[1] == encoder.dim
    assert rows.isfinite().all()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.of)
def test_a_mistake_is_answered_with_what_there_is(family):
    with pytest.raises(UsageError) as caught:
        make_encoder("nonsense", {family.mark: 8})
    said = str(caught.value)
    assert said.startswith(f"--encoder 'nonsense' is unknown: for {family.of} use ")
    assert all(name in said for name in family.encoders)
    assert ("hf:NAME" in said) == (family.pretrained is not None)
    if not family.pretrained:
        with pytest.raises(UsageError, match="'hf:a/model' is unknown"):
            make_encoder("hf:a/model", {family.mark: 8})


def test_data_without_a_family_are_refused_until_there_is_one(monkeypatch):
    sizes = {"n": 3, "points": 5}
    with pytest.raises(UsageError, match=r"sizes are n, points: one of .*rate \(sounds\).* must be among them"):
        make_encoder("auto", sizes)
    known = {
        "linear": lambda sizes: nn.Linear(sizes["points"], 2),
        "linear-WIDTH": lambda sizes, width: nn.Linear(sizes["points"], width),
    }
    points = Family(of="clouds of points", mark="points", encoders=known, auto=lambda sizes: "linear")
    monkeypatch.setattr("nearfar.encoders.FAMILIES", [*FAMILIES, points])
    assert resolve_encoder("auto", sizes) == "linear"
    assert make_encoder("linear", sizes)(torch.zeros(4, 5)).shape == (4, 2)
    assert make_encoder("linear-3", sizes)(torch.zeros(4, 5)).shape == (4, 3)
    with pytest.raises(UsageError, match=r"for clouds of points use linear or linear-WIDTH\. Did you mean 'linear'"):
        make_encoder("liner", sizes)
