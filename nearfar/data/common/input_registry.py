"""Registry of the input classes of all modalities.

An input class opens data to train a model, and adapts data to a trained model. A new modality is one more
row of `INPUT_CLASSES` and a folder `nearfar/data/NAME` with a file `inputs.py`.
"""

from __future__ import annotations

from importlib import import_module

from nearfar.core import Recipe, Sizes, UsageError
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.tokenizer import Tokenizer

__all__ = ["INPUT_CLASSES", "Inputs", "build_inputs"]

INPUT_CLASSES = {
    "audio": "audio.AudioInputs",
    "frames": "frames.FrameInputs",
    "graphs": "graphs.GraphInputs",
    "image": "images.ImageInputs",
    "image-text": "image_text.ImageTextInputs",
    "nodes": "graphs.NodeInputs",
    "text": "text.TextInputs",
    "triples": "triples.TripleInputs",
    "walks": "walks.WalkInputs",
    "words": "words.WordInputs",
}
"""Module and class of each modality's inputs. Imported on demand, because their libraries load slowly."""


def build_inputs(recipe: Recipe, sizes: Sizes | None = None, tokenizer: Tokenizer | None = None) -> Inputs:
    """Build the inputs of a recipe's modality.

    Args:
        recipe: Recipe that names the modality.
        sizes: Sizes of a trained model to which data are adapted; None opens data for training.
        tokenizer: Tokenizer of the trained model, if it has one.

    Raises:
        UsageError: The modality is unknown.
    """
    modality = recipe.card.modality
    if modality not in INPUT_CLASSES:
        raise UsageError(f"{type(recipe).__name__}: unsupported modality {modality!r}. Choose one of {', '.join(INPUT_CLASSES)}")
    module, name = INPUT_CLASSES[modality].split(".")
    return getattr(import_module(f"nearfar.data.{module}.inputs"), name)(sizes, tokenizer)
