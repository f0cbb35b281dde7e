"""Modalities, as evaluation and report see them. A new one is one more row of `MODALITIES` and a file beside this one."""

from __future__ import annotations

from importlib import import_module

from nearfar.core import Recipe
from nearfar.modalities.modality import Evaluation, Modality

__all__ = ["MODALITIES", "Evaluation", "Modality", "get_modality"]

MODALITIES = {
    "audio": "audio.AudioModality",
    "frames": "frames.FrameModality",
    "graphs": "graphs.GraphModality",
    "image": "image.ImageModality",
    "image-text": "image_text.ImageTextModality",
    "nodes": "graphs.NodeModality",
    "text": "text.TextModality",
    "triples": "triples.TripleModality",
    "walks": "walks.WalkModality",
    "words": "words.WordModality",
}


def get_modality(recipe: Recipe) -> Modality:
    module, name = MODALITIES[recipe.card.modality].split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)()
