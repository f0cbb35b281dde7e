"""Signature of an encoder: example input, variable axes and preprocessing, for export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nearfar.train.model import Model


@dataclass(frozen=True)
class EncoderSignature:
    """Input of an encoder."""

    name: str
    example: Tensor
    dynamic_axes: dict[int, str]
    """Axes of variable length, with their names."""
    max_length: int | None
    """Largest length of the axis t, or None."""
    preprocessing: dict[str, Any]
    """Content of preprocessing.json."""
    tower: str = "encoder"
    """Name of the encoder, as in `Model.encode`."""


def get_text_towers(model: Model) -> tuple[str, ...]:
    """Return the names of the text encoders in the net.

    There are two if questions and passages have separate encoders.
    """
    return ("question", "passage") if hasattr(model.net, "question") and hasattr(model.net, "passage") else ("encoder",)
