"""Encoders: shapes, published parameter counts, transformers models by folder."""

from __future__ import annotations

import pytest
import torch

from nearfar.core import RandomKey, UsageError
from nearfar.encoders import IMAGE_ENCODERS, Standardize, make_encoder, resolve_encoder

SIZES = {"channels": 3, "size": 32, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1], "n": 10}


def images(n=2, c=3, size=32):
    return RandomKey(0).integers(torch.arange(n), 256, c, size, size).to(torch.uint8)


@pytest.mark.parametrize("spec", [s for s in IMAGE_ENCODERS if "50" not in s and "34" not in s])
@pytest.mark.parametrize("size", [8, 32, 33])
def test_image_encoders_give_rows_of_their_width(spec, size):
    encoder = make_encoder(spec, {**SIZES, "size": size}).eval()
    out = encoder(images(size=size))
    assert out.shape == (2, encoder.dim)
    assert torch.isfinite(out).all()


@pytest.mark.parametrize(
    ("spec", "count", "dim"), [("resnet18", 11_176_512, 512), ("resnet34", 21_284_672, 512), ("resnet50", 23_508_032, 2048)]
)
def test_resnets_have_the_published_number_of_parameters(spec, count, dim):
    """torchvision's counts without the classifier are for a 7x7 stem: 11,176,512, 21,284,672 and 23,508,032."""
    encoder = make_encoder(f"{spec}-imagenet", SIZES)
    assert sum(p.numel() for p in encoder.parameters()) == count
    assert encoder.dim == dim
    small = sum(p.numel() for p in make_encoder(spec, SIZES).parameters())
    assert count - small == 3 * 64 * (7 * 7 - 3 * 3)


def test_group_norm_encoders_treat_rows_alone():
    encoder = make_encoder("resnet18-gn", SIZES).train()
    batch = images(4)
    assert torch.allclose(encoder(batch)[1:2], encoder(batch[1:2]), atol=1e-4)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in encoder.modules())


def test_standardise_takes_bytes_and_floats():
    layer = Standardize([0.5], [0.25])
    bytes_in = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert layer(bytes_in).flatten().tolist() == [-2.0, 2.0]
    assert torch.equal(layer(bytes_in), layer(bytes_in.float() / 255))


def test_initialisation_is_keyed():
    weights = []
    for _ in range(2):
        with RandomKey(3)("init").fork_torch_rng():
            weights.append(torch.cat([p.flatten() for p in make_encoder("convnet", SIZES).parameters()]))
    assert torch.equal(*weights)


def test_auto_is_chosen_by_size_and_unknown_names_are_explained():
    assert resolve_encoder("auto", {"size": 32}) == "convnet"
    assert resolve_encoder("auto", {"size": 96}) == "resnet18"
    assert resolve_encoder("resnet50", {"size": 8}) == "resnet50"
    with pytest.raises(UsageError, match=r"'resnet19' is unknown.*Did you mean 'resnet1?8"):
        make_encoder("resnet19", SIZES)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_any_image_model_of_transformers_from_a_folder(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    if kind == "resnet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        model, dim = transformers.ResNetModel(config), 16
    else:
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
        )
        model, dim = transformers.ViTModel(config), 16
    model.save_pretrained(tmp_path / "model")
    encoder = make_encoder(f"hf:{tmp_path / 'model'}", SIZES).eval()
    assert encoder.dim == dim
    batch = images()
    expected = model.eval()(pixel_values=encoder[0](batch)).pooler_output.flatten(1)
    assert torch.equal(encoder(batch), expected)


def test_a_missing_transformers_model_is_one_message(tmp_path):
    with pytest.raises(UsageError, match=r"hf:.*neither a folder nor in the local cache"):
        make_encoder("hf:nobody/nothing", SIZES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no readable model"):
        make_encoder(f"hf:{tmp_path / 'empty'}", SIZES)
