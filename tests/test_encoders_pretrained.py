"""Models of transformers on images that are not quite what they take."""

from __future__ import annotations

import pytest
import torch

from nearfar.core import RandomKey, UsageError
from nearfar.encoders import make_encoder

transformers = pytest.importorskip("transformers")


def images(channels: int, size: int = 32) -> torch.Tensor:
    return RandomKey(0).integers(torch.arange(2), 256, channels, size, size).to(torch.uint8)


def sizes(channels: int, size: int = 32) -> dict:
    return {"channels": channels, "size": size, "mean": [0.5] * channels, "std": [0.2] * channels, "n": 10}


@pytest.fixture
def vit(tmp_path):
    def saved(channels: int) -> str:
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=32,
            patch_size=8,
            num_channels=channels,
        )
        transformers.ViTModel(config).save_pretrained(tmp_path / "model")
        return f"hf:{tmp_path / 'model'}"

    return saved


def test_grey_images_are_shown_to_a_model_of_colours_with_equal_channels(vit):
    name = vit(3)
    grey, colour = make_encoder(name, sizes(1)).eval(), make_encoder(name, sizes(3)).eval()
    x = images(1)
    assert torch.equal(grey(x), colour(x.expand(-1, 3, -1, -1)))


def test_colours_for_a_model_of_grey_images_are_one_clear_error(vit):
    encoder = make_encoder(vit(1), sizes(3))
    with pytest.raises(UsageError, match=r"--encoder hf:.*model takes images of 1 channel\(s\), these images have 3"):
        encoder(images(3))


def test_a_size_that_the_model_does_not_take_is_one_clear_error(vit):
    encoder = make_encoder(vit(3), sizes(3, 40))
    with pytest.raises(UsageError, match=r"--encoder hf:.*40.*--image-size"):
        encoder(images(3, 40))
