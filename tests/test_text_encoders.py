"""Tokenizers and text encoders: the same everywhere, padding counts for nothing, pooling as its definition says."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearfar.core import NearfarError, RandomKey, UsageError
from nearfar.data.common.tokenizer import RaggedTokenIds, Tokenizer, load_pretrained_tokenizer, train_tokenizer
from nearfar.data.samples.docstrings import make_docstrings
from nearfar.data.text.load import load_all_texts
from nearfar.encoders import TEXT_ENCODERS, make_encoder, read_pretrained_config, resolve_encoder
from nearfar.encoders.text import HuggingFaceText, get_max_length, pool_mean

SENTENCES = make_docstrings().get_strings(range(600))
TOKENIZER = train_tokenizer(SENTENCES, 600)
TEXTS = load_all_texts(SENTENCES).train.tokenize(TOKENIZER, 24)
SIZES = TEXTS.sizes()
SMALL = ("bert-tiny", "gru", "bag")


@pytest.mark.slow
def test_training_a_tokenizer_gives_the_same_in_every_process():
    code = (
        "import hashlib\nfrom nearfar.data.samples.docstrings import make_docstrings\n"
        "from nearfar.data.common.tokenizer import train_tokenizer\n"
        "print(hashlib.sha256(train_tokenizer(make_docstrings().get_strings(range(600)), 600).to_json().encode()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True).stdout.strip()
    assert other == hashlib.sha256(TOKENIZER.to_json().encode()).hexdigest()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_string_has_a_code_within_the_vocabulary(text):
    row = TOKENIZER.encode([text], 1000).get_row(0)
    assert row[0] == TOKENIZER.special_ids["cls"]
    assert row[-1] == TOKENIZER.special_ids["sep"]
    assert row.max() < TOKENIZER.vocab_size == 600


def test_decoding_gives_the_text_back_in_lower_case():
    ids = TOKENIZER.encode(["Hello, World! It's 3 o'clock."], 100).get_row(0)
    assert TOKENIZER.decode([*ids.tolist(), TOKENIZER.special_ids["pad"]]) == "hello, world! it's 3 o'clock."


def test_long_texts_are_cut_off_with_their_marks():
    ids = TOKENIZER.encode(["word " * 100], 12).get_row(0)
    assert len(ids) == 12
    assert ids[-1] == TOKENIZER.special_ids["sep"]


def test_a_saved_tokenizer_is_the_same(tmp_path):
    (tmp_path / "t.json").write_text(TOKENIZER.to_json())
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.special_ids == TOKENIZER.special_ids
    assert np.array_equal(loaded.encode(SENTENCES, 30).flat, TOKENIZER.encode(SENTENCES, 30).flat)
    (tmp_path / "t.json").write_text(TOKENIZER.to_json()[:-30])
    with pytest.raises(NearfarError, match=r"t\.json is not the tokenizer"):
        Tokenizer.load(tmp_path / "t.json")
    with pytest.raises(UsageError, match="at least 261"):
        train_tokenizer(SENTENCES, 100)


@given(st.lists(st.lists(st.integers(1, 9), max_size=20), min_size=1, max_size=6), st.data())
def test_padding_fills_up_on_the_right_to_a_multiple_of_eight(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    padded = RaggedTokenIds.from_rows(rows).pad_rows(np.array(chosen), pad_id=0)
    longest = max(1, *(len(rows[i]) for i in chosen))
    assert padded.shape == (len(chosen), -(-longest // 8) * 8)
    for got, i in zip(padded.tolist(), chosen, strict=True):
        assert got == rows[i] + [0] * (len(got) - len(rows[i]))


def test_columns_are_padded_to_one_width():
    pairs = load_all_texts({"a": ["x", "y"], "b": ["a much longer text than the other", "z"]}).train.tokenize(TOKENIZER, 24)
    both = pairs.read_columns([0, 1], 2)
    assert both.shape[:2] == (2, 2)
    assert torch.equal(both[1, :1], pairs.tokens.columns["b"].pad_rows(np.array([0]), 0))
    with pytest.raises(NearfarError, match="no token ids"):
        load_all_texts(["a", "b"]).train.read([0])


def encoder(spec: str, pool: str = "mean", dropout: float = 0.1):
    with RandomKey(0)("init").fork_torch_rng():
        return make_encoder(spec, SIZES).configure(pool, dropout)


@pytest.mark.parametrize("spec", SMALL)
@pytest.mark.parametrize("pool", ["cls", "mean", "first-last"])
def test_neighbours_and_padding_do_not_matter(spec, pool):
    net = encoder(spec, pool).eval()
    ids = TEXTS.read(range(8))
    together = net(torch.cat([ids, torch.full((8, 16), SIZES["special"]["pad"])], 1))
    alone = torch.cat([net(TEXTS.read([i])) for i in range(8)])
    assert together.shape == (8, net.dim)
    assert torch.allclose(together, alone, atol=1e-5)


def test_pooling_is_what_it_says():
    net, ids = encoder("bert-tiny").eval(), TEXTS.read(range(4))
    mask = ids != SIZES["special"]["pad"]
    hidden = net.model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    last = torch.stack([h[m].mean(0) for h, m in zip(hidden[-1], mask, strict=True)])
    first = torch.stack([h[m].mean(0) for h, m in zip(hidden[1], mask, strict=True)])
    for pool, expected in {"cls": hidden[-1][:, 0], "mean": last, "first-last": (first + last) / 2}.items():
        assert torch.allclose(net.configure(pool, 0.1)(ids), expected, atol=1e-5)
    assert torch.equal(pool_mean(torch.ones(1, 3, 2), torch.zeros(1, 3, dtype=torch.bool)), torch.zeros(1, 2))


def test_a_gru_stops_at_the_last_token():
    net, row = encoder("gru").eval(), TEXTS.tokens.columns["text"].get_row(3)
    state = net.gru(net.embedding(torch.tensor(row.tolist())[None]))[1][0]
    assert torch.allclose(net(TEXTS.read([3])), state, atol=1e-6)


def test_a_bag_knows_no_order():
    net, ids = encoder("bag").eval(), TEXTS.read([5])
    there = int((ids != SIZES["special"]["pad"]).sum())
    turned = torch.cat([ids[:, :there].flip(1), ids[:, there:]], 1)
    assert torch.allclose(net(ids), net(turned), atol=1e-6)
    assert not torch.allclose(encoder("gru").eval()(ids), encoder("gru").eval()(turned), atol=1e-3)


@pytest.mark.parametrize("spec", SMALL)
def test_dropout_is_set_everywhere_and_keyed(spec):
    ids = TEXTS.read(range(4))
    still, noisy = encoder(spec, dropout=0.0).train(), encoder(spec, dropout=0.5).train()
    assert torch.equal(still(ids), still(ids))
    with RandomKey(1).fork_torch_rng():
        a, b = noisy(ids), noisy(ids)
    with RandomKey(1).fork_torch_rng():
        again = noisy(ids)
    assert torch.equal(a, again)
    assert not torch.allclose(a, b, atol=1e-3)


def test_names_and_mistakes():
    assert resolve_encoder("auto", SIZES) == "bert-tiny"
    assert set(SMALL) < set(TEXT_ENCODERS)
    with pytest.raises(UsageError, match="Did you mean 'bert-tiny'"):
        make_encoder("bert-tinny", SIZES)
    with pytest.raises(UsageError, match="neither a folder nor in the local cache"):
        make_encoder("hf:nobody/nothing", SIZES)
    with pytest.raises(UsageError, match="neither a folder nor in the local cache"):
        load_pretrained_tokenizer("nobody/nothing")


def test_a_pretrained_model_is_built_again_without_its_files(tmp_path):
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=600, pad_token_id=0, max_position_embeddings=40, **shape)).eval()
    model.save_pretrained(tmp_path / "model")
    names = {f"{name}_token": f"[{name.upper()}]" for name in TOKENIZER.special_ids}
    PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.engine, **names).save_pretrained(tmp_path / "model")
    spec = f"hf:{tmp_path / 'model'}"

    own = load_pretrained_tokenizer(str(tmp_path / "model"))
    assert own.special_ids == TOKENIZER.special_ids
    assert np.array_equal(own.encode(SENTENCES[:50], 24).flat, TOKENIZER.encode(SENTENCES[:50], 24).flat)
    net, ids = make_encoder(spec, SIZES).configure("mean", 0.1).eval(), TEXTS.read(range(4))
    mask = ids != 0
    expected = pool_mean(model(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask)
    assert torch.allclose(net(ids), expected, atol=1e-6)

    known = SIZES | read_pretrained_config(spec)
    with pytest.raises(UsageError, match="at most 40 tokens"):
        make_encoder(spec, SIZES | {"max_length": 64})
    (tmp_path / "model").rename(tmp_path / "gone")
    again = make_encoder(spec, known, load_weights=False)
    again.load_state_dict(net.state_dict())
    assert torch.equal(again.configure("mean", 0.1).eval()(ids), net(ids))


@pytest.mark.parametrize("pool", ["cls", "mean", "first-last"])
def test_lengths_need_not_be_multiples_of_eight(pool):
    texts = load_all_texts(["word " * 900, "short"]).train.tokenize(TOKENIZER, 700)
    encoder = make_encoder("bert-tiny", texts.sizes()).configure(pool, 0.0).eval()
    ids = texts.read([0, 1])
    assert ids.shape[1] == 704
    with torch.no_grad():
        assert torch.allclose(encoder(ids), encoder(ids[:, :700]), atol=1e-6)
        assert encoder.encode_tokens(ids).shape[:2] == (2, 700)


def test_half_a_character_is_read_as_a_question_mark():
    odd = "half \ud83d a smile"
    assert TOKENIZER.decode(TOKENIZER.encode([odd], 24).get_row(0).tolist()) == "half ? a smile"
    assert train_tokenizer([odd, "text"], 300).vocab_size >= 261


def test_roberta_begins_to_count_its_places_after_the_padding(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.RobertaConfig(
        vocab_size=SIZES["vocab_size"], hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=26, pad_token_id=1,
    )  # fmt: skip
    model = transformers.RobertaModel(config, add_pooling_layer=False)
    assert get_max_length(model) == 24
    encoder = HuggingFaceText(model, SIZES | {"special": {"pad": 1}}).configure("mean", 0.0).eval()
    ids = torch.full((1, 32), 1)
    ids[0, :24] = torch.arange(10, 34)
    with torch.no_grad():
        assert torch.isfinite(encoder(ids)).all()
