"""Modality-specific parts of evaluation and report.

To add a modality, add an entry to `MODALITIES` and a file to this folder.
"""

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
    """Return the modality of a recipe."""
    module, name = MODALITIES[recipe.card.modality].split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)()
