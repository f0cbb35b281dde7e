"""The registry of encoders: every kind of data has one family, which names, chooses and builds its encoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nearfar.core import UsageError
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.data.graphs.dataset import Graphs, Nodes, build_graph_store
from nearfar.data.image_text.readers import make_digits_captions
from nearfar.data.samples.bounce import make_bounce
from nearfar.data.samples.tones import make_tones
from nearfar.data.text.readers import build_texts
from nearfar.data.words.dataset import build_corpus
from nearfar.encoders import EncoderFamily, list_encoder_families, make_encoder, resolve_encoder

LINES = ["one text", "another text", "a third one"]
STORE = build_graph_store(np.eye(3, dtype=np.float32), np.array([[0], [1]]), np.array([0, 3]))
DATA = {
    "frames": (make_bounce, "nature-small"),
    "graphs": (lambda: Graphs(STORE, np.arange(1)), "gin-3x32"),
    "nodes": (lambda: Nodes(STORE, np.arange(3)), "gcn-1x512"),
    "images": (lambda: make_digits_captions(ImageReadOptions()).train.images, "convnet"),
    "sounds": (make_tones, "mel"),
    "texts": (lambda: build_texts({"text": LINES}, "test").tokenize(train_tokenizer(LINES, 300), 8), "bert-tiny"),
    "words": (lambda: build_corpus([["a", "b"], ["b", "c"]], 1), "lookup"),
}


@pytest.mark.parametrize(("data", "auto"), DATA.values(), ids=DATA)
def test_data_of_every_kind_belong_to_one_family_and_auto_names_an_encoder_for_them(data, auto):
    opened = data()
    sizes = opened.sizes()
    assert sum(family.size_field in sizes for family in list_encoder_families()) == 1
    assert resolve_encoder("auto", sizes) == auto
    assert resolve_encoder("mine", sizes) == "mine"
    encoder = make_encoder(auto, sizes).eval()
    rows = encoder(opened.read(np.arange(1)))
    assert rows.shape[1] == encoder.dim
    assert rows.isfinite().all()


@pytest.mark.parametrize("family", list_encoder_families(), ids=lambda family: family.modality_name)
def test_a_mistake_is_answered_with_what_there_is(family):
    with pytest.raises(UsageError) as caught:
        make_encoder("nonsense", {family.size_field: 8})
    said = str(caught.value)
    assert said.startswith(f"--encoder 'nonsense' is unknown: for {family.modality_name} use ")
    assert all(name in said for name in family.builders)
    assert ("hf:NAME" in said) == (family.build_pretrained is not None)
    if not family.build_pretrained:
        with pytest.raises(UsageError, match="'hf:a/model' is unknown"):
            make_encoder("hf:a/model", {family.size_field: 8})


def test_data_without_a_family_are_refused_until_there_is_one(monkeypatch):
    sizes = {"n": 3, "points": 5}
    with pytest.raises(UsageError, match=r"sizes n, points: one of .*sample_rate \(sounds\).* must be among them"):
        make_encoder("auto", sizes)
    known = {
        "linear": lambda sizes: nn.Linear(sizes["points"], 2),
        "linear-WIDTH": lambda sizes, width: nn.Linear(sizes["points"], width),
    }
    points = EncoderFamily(modality_name="clouds of points", size_field="points", builders=known, choose_default=lambda sizes: "linear")
    families = (*list_encoder_families(), points)
    monkeypatch.setattr("nearfar.encoders.list_encoder_families", lambda: families)
    assert resolve_encoder("auto", sizes) == "linear"
    assert make_encoder("linear", sizes)(torch.zeros(4, 5)).shape == (4, 2)
    assert make_encoder("linear-3", sizes)(torch.zeros(4, 5)).shape == (4, 3)
    with pytest.raises(UsageError, match=r"for clouds of points use linear or linear-WIDTH\. Did you mean 'linear'"):
        make_encoder("liner", sizes)
