"""Modalities, as evaluation and report see them. A new one is one more row of `KINDS` and a file beside this one."""

from __future__ import annotations

from importlib import import_module

from nearfar.core import Recipe
from nearfar.modalities.interface import Evaluation, Kind, Pair

__all__ = ["KINDS", "Evaluation", "Kind", "Pair", "kind_of"]

KINDS = {
    "audio": "audio.AudioKind",
    "frames": "frames.FrameKind",
    "graphs": "graphs.GraphKind",
    "image": "image.ImageKind",
    "image-text": "image_text.ImageTextKind",
    "nodes": "graphs.NodeKind",
    "text": "text.TextKind",
    "triples": "triples.TripleKind",
    "walks": "walks.WalkKind",
    "words": "words.WordKind",
}


def kind_of(recipe: Recipe) -> Kind:
    module, name = KINDS[recipe.card.modality].split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)()
