"""CLIP with towers from files: a whole CLIPModel gives transformers' own similarities, and runs are loaded when the files are gone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import nearfar
from nearfar.api.evaluate import evaluate_model
from nearfar.core import UsageError
from nearfar.data.common.tokenizer import train_tokenizer
from nearfar.export import export_encoder

transformers = pytest.importorskip("transformers")
import tokenizers  # noqa: E402  (comes with transformers)

MEAN, STD = [0.48, 0.45, 0.40], [0.26, 0.27, 0.28]
CAPTIONS = ["the digit three", "a handwritten seven", "somebody wrote the number zero", "this is a nine"]
TINY = {"preset": "tiny", "steps": 1, "batch_size": 16, "image_size": 16}


def save_tokenizer(folder, special: dict[str, str]) -> int:
    """BPE of a few hundred tokens with the special ones around a text; returns its size."""
    engine = tokenizers.Tokenizer.from_str(train_tokenizer(CAPTIONS * 4, 300).definition)
    engine.add_special_tokens(list(special.values()))
    first, last = special.get("bos_token", special.get("cls_token")), special.get("eos_token", special.get("sep_token"))
    around = [(token, engine.token_to_id(token)) for token in (first, last)]
    engine.post_processor = tokenizers.processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=around)
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **special).save_pretrained(folder)
    return engine.get_vocab_size()


@pytest.fixture
def clip(tmp_path):
    """A CLIPModel with random weights and its tokenizer, as the authors' folders are: padded with the end token."""
    folder = tmp_path / "clip"
    special = {"bos_token": "<start>", "eos_token": "<end>", "pad_token": "<end>", "unk_token": "<end>"}
    size = save_tokenizer(folder, special)
    end = transformers.AutoTokenizer.from_pretrained(folder).eos_token_id
    towers = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = towers | {"vocab_size": size, "max_position_embeddings": 18, "eos_token_id": end, "bos_token_id": end - 1, "pad_token_id": end}
    vision = towers | {"image_size": 16, "patch_size": 8}
    torch.manual_seed(0)
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12, logit_scale_init_value=3.1)
    )
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    return folder, model.eval()


def both(folder, **changes):
    return nearfar.fit(
        "clip", **TINY | {"encoder": f"hf:{folder}", "text_encoder": f"hf:{folder}", "max_length": 16, "lr": 1e-9, **changes}
    )


def pictures(n: int = 6) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, 1, 16, 16), dtype=np.uint8))


def test_both_towers_of_a_clip_give_transformers_own_similarities(clip):
    folder, model = clip
    run = both(folder).build_untrained()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(CAPTIONS, padding=True, return_tensors="pt")
    pixels = (pictures().float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        theirs = model(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, pixel_values=pixels).logits_per_image
        ours = run.net.temperature() * run.encode(pictures()) @ run.encode(CAPTIONS).T
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert float(run.net.temperature().detach()) == pytest.approx(np.exp(3.1), rel=1e-5)
    assert run.encode(CAPTIONS).shape == (4, 12), "the space is the model's own, whatever --dim says"


def test_a_run_that_began_with_a_clip_is_trained_measured_and_loaded_without_it(clip, tmp_path):
    folder, _ = clip
    run = both(folder, out=tmp_path / "run", lr=1e-3, steps=2)
    rows = {row["representation"]: row for row in evaluate_model(run).results}
    assert 0 <= rows["trained encoders"]["zero_shot"] <= 1
    assert rows["untrained encoders"]["zero_shot"] != rows["trained encoders"]["zero_shot"]
    shutil.rmtree(folder)
    again = nearfar.load(tmp_path / "run", device="cpu")
    assert torch.equal(again.encode(CAPTIONS), run.encode(CAPTIONS))
    assert torch.equal(again.encode(pictures()), run.encode(pictures()))
    assert str(tmp_path) not in (tmp_path / "run" / "README.md").read_text(), "the card names no folder of this machine"
    with pytest.raises(UsageError, match="neither a folder nor in the local cache"):
        again.build_untrained()


def test_one_tower_of_a_clip_gets_a_map_into_the_space_of_the_other(clip):
    folder, _ = clip
    run = both(folder, text_encoder="bag", dim=24, temperature=0.5)
    assert run.encode(CAPTIONS).shape == run.encode(pictures(4)).shape == (4, 24)
    assert float(run.net.temperature().detach()) == pytest.approx(2, rel=1e-4)


def test_a_text_tower_from_files_is_loaded_when_they_are_gone(tmp_path):
    folder = tmp_path / "bert"
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    size = save_tokenizer(folder, names)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 24}
    transformers.BertModel(transformers.BertConfig(vocab_size=size, pad_token_id=0, **shape)).save_pretrained(folder)
    run = nearfar.fit("clip", **TINY, text_encoder=f"hf:{folder}", out=tmp_path / "run")
    shutil.rmtree(folder)
    again = nearfar.load(tmp_path / "run", device="cpu")
    assert torch.equal(again.encode(CAPTIONS), run.encode(CAPTIONS))


@pytest.mark.slow
@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_both_towers_go_home(tmp_path, to):
    run = nearfar.fit("clip", **TINY | {"image_size": None}, text_encoder="bert-tiny")
    export_encoder(run, to, tmp_path / "out")
    words = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    ids = run.inputs.adapt(CAPTIONS)[0].read(np.arange(4))
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype=np.uint8))
    for name, x in (("image", images), ("text", ids)):
        found = exported(tmp_path / "out", name, words[name]["input"], x, to)
        torch.testing.assert_close(found, run.encode(images if name == "image" else CAPTIONS), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_what_cannot_go_home_says_why(tmp_path, to):
    with pytest.raises(UsageError, match=f"--to {to}: the encoder convnet is not a .*model of transformers; use --to onnx"):
        export_encoder(nearfar.fit("clip", **TINY | {"image_size": None}), to, tmp_path / "out")


def exported(folder, name: str, taken: str, x: torch.Tensor, to: str) -> torch.Tensor:
    if to == "torch":
        return torch.export.load(folder / f"{name}.pt2").module()(x)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
    return torch.from_numpy(session.run(None, {taken: x.numpy()})[0])
