"""Views of sentences: cutoff, masking and easy edits change what they say, by slot and key alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nearfar
from nearfar.core import NearfarError, RandomKey, Rows, UsageError
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.data.samples.docstrings import make_docstrings
from nearfar.data.text.load import load_all_texts
from nearfar.data.text.wordnet import read_synonyms
from nearfar.encoders import make_encoder
from nearfar.similarity.easy_data_augmentation import EDITS, EasyDataAugmentation, UniformDraws, edit_sentence
from nearfar.similarity.token_views import EraseSpan, EraseTokens, FeatureCutoff, MaskTokens, SpecialTokens, TokenViews

SENTENCES = make_docstrings().get_strings(range(1500))
TEXTS = load_all_texts(SENTENCES).train.tokenize(train_tokenizer(SENTENCES, 600), 32)
SIZES = TEXTS.sizes()
SPECIAL = SpecialTokens.from_sizes(SIZES)
IDS, SLOTS = TEXTS.read(range(1500)), torch.arange(1500) + 77
SYNONYMS = {"big": ("large",), "cat": ("feline", "house pet"), "runs": ("goes",), "fast": ("quickly", "rapidly"), "the": ("teh",)}
words = st.lists(st.sampled_from([*SYNONYMS, "of", "a", "zebra"]), min_size=1, max_size=12)


@pytest.mark.parametrize("op", [EraseTokens(SPECIAL, 0.2), MaskTokens(SPECIAL, 0.2)])
def test_tokens_change_with_the_given_probability(op):
    changed, ordinary = op(IDS, SLOTS, RandomKey(0)) != IDS, SPECIAL.is_ordinary(IDS)
    assert not (changed & ~ordinary).any()
    assert changed.sum() / ordinary.sum() == pytest.approx(0.2, abs=0.01)
    new = SPECIAL.pad_id if isinstance(op, EraseTokens) else SPECIAL.mask_id
    assert (op(IDS, SLOTS, RandomKey(0))[changed] == new).all()
    assert torch.equal(op(IDS[5:7, :24], SLOTS[5:7], RandomKey(0)), op(IDS, SLOTS, RandomKey(0))[5:7, :24])
    assert not torch.equal(op(IDS, SLOTS, RandomKey(1)), op(IDS, SLOTS, RandomKey(0)))


def test_a_span_is_one_run_of_the_right_length_anywhere():
    erased = EraseSpan(SPECIAL, 0.3)(IDS, SLOTS, RandomKey(0)) != IDS
    starts = []
    for gone, ordinary in zip(erased, SPECIAL.is_ordinary(IDS), strict=True):
        place = gone.nonzero().flatten().tolist()
        assert len(place) == round(0.3 * float(ordinary.sum()))
        if place:
            assert place == list(range(place[0], place[-1] + 1))
            starts.append((place[0] - 1) / max(1, int(ordinary.sum()) - len(place)))
    assert min(starts) == 0
    assert max(starts) == 1
    assert np.mean(starts) == pytest.approx(0.5, abs=0.05)


def test_feature_cutoff_reaches_the_encoder():
    kept = FeatureCutoff(256, 0.25).draw_kept_features(SLOTS, RandomKey(0))
    assert 1 - kept.mean() == pytest.approx(0.25, abs=0.01)
    net = make_encoder("bag", SIZES).eval()
    plain, cut = net(IDS[:5]), net(IDS[:5], kept[:5])
    assert torch.allclose(cut, plain * kept[:5], atol=1e-6)
    bert = make_encoder("bert-tiny", SIZES).configure("mean", 0.0)
    assert torch.allclose(bert(IDS[:5], torch.ones(5, 128)), bert(IDS[:5]), atol=1e-5)
    assert not torch.allclose(bert(IDS[:5], kept[:5, :128]), bert(IDS[:5]), atol=1e-3)


@pytest.mark.parametrize("spec", ["bert-tiny", "gru", "bag"])
def test_erasing_a_token_counts_and_what_follows_it_is_still_read(spec):
    net, ids = make_encoder(spec, SIZES).eval(), TEXTS.read([3])
    erased = ids.clone()
    last = int((ids[0] != SPECIAL.pad_id).sum()) - 2
    erased[0, last - 2] = SPECIAL.pad_id  # near the end: an untrained GRU forgets what is far back
    other = erased.clone()
    other[0, last] = 300 if int(ids[0, last]) != 300 else 301
    assert not torch.allclose(net(erased), net(ids), atol=1e-4)
    assert not torch.allclose(net(erased), net(other), atol=1e-4), "what stands behind an erased token counts"


def test_two_views_are_drawn_apart():
    rows = Rows(np.arange(4), np.arange(4), np.arange(4))
    similarity = TokenViews((EraseTokens(SPECIAL, 0.5),), FeatureCutoff(8, 0.5))
    x = similarity.view(similarity.read(TEXTS, rows, RandomKey(0)), rows, RandomKey(0))
    assert not torch.equal(x["v0"], x["v1"])
    assert not torch.equal(x["kept0"], x["kept1"])
    with pytest.raises(UsageError, match="no mask token"):
        MaskTokens(SpecialTokens((0, 1), 0), 0.1)


@given(words, st.integers(0, 50), st.floats(0.05, 0.5))
def test_easy_edits_keep_what_they_promise(sentence, slot, alpha):
    n, before = max(1, int(alpha * len(sentence))), Counter(sentence)
    after = {
        name: edit_sentence(" ".join(sentence), name, alpha, UniformDraws(RandomKey(0)(name), slot), SYNONYMS).split() for name in EDITS
    }
    assert Counter(after["swap"]) == before
    assert 1 <= len(after["delete"]) <= len(sentence)
    assert not Counter(after["delete"]) - before
    new = Counter(after["insert"]) - before
    known = [w for w in sentence if w in SYNONYMS]
    assert not before - Counter(after["insert"])
    assert bool(new) == bool(known)
    assert set(new) <= {part for others in SYNONYMS.values() for word in others for part in word.split()}
    lost = before - Counter(after["replace"])
    candidates = {w for w in sentence if w in SYNONYMS} - {"the"}
    assert len(lost) == min(n, len(candidates)), "stop words and words without synonyms stay"
    assert set(lost) <= candidates


def test_easy_edits_depend_on_slot_and_key_only():
    similarity = EasyDataAugmentation(SYNONYMS, 0.3)
    rows = Rows(np.arange(6), np.arange(6) + 10, np.arange(6))
    whole, part = similarity.read(TEXTS, rows, RandomKey(3)), similarity.read(TEXTS, rows[2:4], RandomKey(3))
    assert torch.equal(part, whole[:, 2:4, : part.shape[2]])
    assert not torch.equal(whole[0], whole[1])
    with pytest.raises(UsageError, match="unknown edit 'blur'"):
        EasyDataAugmentation(SYNONYMS, 0.1, ("blur",))


def wordnet(folder):
    """A dictionary of three senses, in WordNet's layout."""
    licence = "  1 This software and database is being provided to you\n"
    lines = {
        "data.noun": "00000001 03 n 03 car 0 auto 0 motor_car 1 001 @ 00000002 n 0000 | a vehicle  \n",
        "data.verb": "00000001 29 v 01 breathe 0 000 | draw air  \n",
        "data.adj": "00000001 00 a 02 Able(p) 0 capable 0 000 | having power  \n",
        "data.adv": "00000001 02 r 02 fast 0 quickly 0 000 | with speed  \n",
    }
    folder.mkdir()
    for name, line in lines.items():
        (folder / name).write_text(licence + line)
    return folder


def test_synonyms_are_words_of_one_sense(tmp_path):
    found = read_synonyms(wordnet(tmp_path / "wn"))
    assert found["car"] == ("auto", "motor car")
    assert found["capable"] == ("able",)
    assert "breathe" not in found
    (tmp_path / "wn" / "data.adv").write_text("nonsense\n")
    read_synonyms.cache_clear()
    with pytest.raises(NearfarError, match=r"data\.adv, line 1: not a line of WordNet"):
        read_synonyms(tmp_path / "wn")
    with pytest.raises(UsageError, match=r"it has no data\.noun"):
        read_synonyms(tmp_path)


@pytest.mark.parametrize("views", ["erase-tokens", "erase-span", "hide-tokens", "cut-features", "eda"])
def test_simcse_trains_with_other_views(views, tmp_path):
    more = {"wordnet_folder": str(wordnet(tmp_path / "wn"))} if views == "eda" else {}
    settings = {"encoder": "bag", "steps": 12, "batch_size": 32, "log_every": 1, "vocab_size": 400, "max_length": 16, "changed_share": 0.2}
    run = nearfar.fit("simcse-unsup", SENTENCES[:200], augmentation=views, **settings, **more)
    plain = nearfar.fit("simcse-unsup", SENTENCES[:200], **settings)
    losses, others = ([m["loss"] for m in one.metrics if "loss" in m] for one in (run, plain))
    assert np.isfinite(losses).all()
    assert losses[0] != others[0], "the views are not those of dropout alone"
    if views == "eda":
        with pytest.raises(UsageError, match="--wordnet-folder"):
            nearfar.fit("simcse-unsup", SENTENCES[:200], augmentation=views, **settings)
