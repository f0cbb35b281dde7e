"""A sentence encoder from a folder: a small BERT written here, against one text at a time; and all-MiniLM where it is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from senteval_files import WORDS, sentence

from nearfar.core import UsageError
from nearfar.data.text.senteval import read_sts_benchmark
from nearfar.encoders.sentence import SentenceEncoder
from nearfar.evaluate.sts import build_cosine_scorer, measure_sts

TEXTS = [sentence(i) for i in (3, 0, 14, 1, 9, 22, 4)] + ["", "cat"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A transformers folder with random weights, nothing of sentence-transformers in it."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS)]) + "\n")
    tokenizer = BertTokenizerFast.from_pretrained(str(folder))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_settings(plain: Path, folder: Path, mode: str, normalise: bool = True, longest: int = 32) -> Path:
    """The folder with sentence-transformers' settings beside the weights."""
    for path in plain.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "1_Pooling").mkdir()
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{n}": n == mode for n in names}))
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    (folder / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{m}"} for m in modules]))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    return folder


def test_batches_padding_and_order_change_nothing(plain):
    one, many = SentenceEncoder(plain, batch_size=1), SentenceEncoder(plain, batch_size=4)
    seen = []
    found = many.encode(TEXTS, lambda done, total: seen.append((done, total)))
    assert found.shape == (9, 16)
    assert seen == [(4, 9), (8, 9), (9, 9)]
    for row, text in zip(found, TEXTS, strict=True):
        assert torch.allclose(row, one.encode([text])[0], atol=1e-5)
    assert many.encode([]).shape == (0, 16)
    assert not found.requires_grad


def test_a_plain_folder_gets_the_mean_of_its_tokens_as_they_are(plain):
    encoder = SentenceEncoder(plain)
    assert (encoder.pooling, encoder.normalize, encoder.max_length, encoder.dim) == ("mean", False, 32, 16)
    from transformers import AutoModel, AutoTokenizer

    with torch.no_grad():
        tokens = AutoModel.from_pretrained(plain)(**AutoTokenizer.from_pretrained(plain)("a cat sat", return_tensors="pt"))
    assert torch.allclose(encoder.encode(["a cat sat"]), tokens.last_hidden_state.mean(1), atol=1e-5)


@pytest.mark.parametrize(("mode", "pooling"), [("cls_token", "cls"), ("mean_tokens", "mean")])
def test_the_folders_own_settings_are_used(plain, tmp_path, mode, pooling):
    encoder = SentenceEncoder(with_settings(plain, tmp_path, mode, longest=6))
    assert (encoder.pooling, encoder.normalize, encoder.max_length) == (pooling, True, 6)
    x = encoder.encode(TEXTS)
    assert torch.allclose(x.norm(dim=1), torch.ones(len(TEXTS)), atol=1e-5)
    assert torch.allclose(*encoder.encode(["a cat sat on the mat", "a cat sat on red water"]), atol=1e-6), "cut after six tokens"


def test_folders_that_hold_no_encoder(plain, tmp_path):
    with pytest.raises(UsageError, match="folder has no readable model"):
        SentenceEncoder(tmp_path)
    broken = with_settings(plain, tmp_path, "mean_sqrt_len_tokens")
    with pytest.raises(UsageError, match="pooling_mode_mean_sqrt_len_tokens is not supported"):
        SentenceEncoder(broken)
    (broken / "modules.json").write_text("[")
    (broken / "1_Pooling" / "config.json").unlink()
    with pytest.raises(UsageError, match=r"modules\.json is not readable JSON"):
        SentenceEncoder(broken)
    (broken / "modules.json").unlink()
    (broken / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="folder has no readable model"):
        SentenceEncoder(broken)


def test_all_minilm_reaches_its_level_on_a_part_of_sts_benchmark(data_folder):
    """Every tenth test pair; on all 1,379 it is 82.03, which `benchmarks/sts.py` shows."""
    for name in ("minilm", "senteval"):
        if not (data_folder / name).is_dir():
            pytest.skip(f"no {name} in {data_folder} (set NEARFAR_DATA)")
    test = read_sts_benchmark(data_folder / "senteval", "test")
    part = type(test)(test.first[::10], test.second[::10], test.score[::10])
    encoder = SentenceEncoder(data_folder / "minilm")
    assert 0.77 < measure_sts({"STS-B": {"test": part}}, build_cosine_scorer(encoder.encode)).compute_average() < 0.88
