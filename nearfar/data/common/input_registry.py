"""What a net takes, by modality: how data are opened to train it, and brought to it once it is trained.

A new modality is one more row of `INPUTS` and a folder `nearfar/data/NAME` with a file `inputs.py`.
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
"""Where the inputs of a modality are defined; imported when they are asked for, since their libraries take a while."""


def build_inputs(recipe: Recipe, sizes: Sizes | None = None, tokenizer: Tokenizer | None = None) -> Inputs:
    """How the data of this recipe are opened; with a net's sizes, brought to what that net takes."""
    modality = recipe.card.modality
    if modality not in INPUT_CLASSES:
        raise UsageError(f"{type(recipe).__name__}: nothing is known of data of the modality {modality!r}: {', '.join(INPUT_CLASSES)} are")
    module, name = INPUT_CLASSES[modality].split(".")
    return getattr(import_module(f"nearfar.data.{module}.inputs"), name)(sizes, tokenizer)
