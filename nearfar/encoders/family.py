"""Encoder families: the names, defaults and builders of the encoders for one modality."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from nearfar.core import Sizes, UsageError
from nearfar.core.errors import suggest_similar_names

EncoderBuilder = Callable[..., nn.Module]
"""Function that builds an encoder with a `dim` from the sizes of the data and the numbers in its name.
Weights are drawn from torch's generators."""
Architecture = Mapping[str, Any]


@dataclass(frozen=True)
class EncoderFamily:
    """Names, default and builders of the encoders for one modality.

    Each family is defined below its encoders.
    """

    modality_name: str
    """Name of the modality, in the plural."""
    size_field: str
    """Field that only data of this modality have among their sizes."""
    builders: Mapping[str, EncoderBuilder]
    """Builders by name. Words in capitals stand for whole numbers: gcn-LAYERSxWIDTH is built from (sizes,
    layers, width)."""
    choose_default: Callable[[Sizes], str]
    """Function that returns the name that `auto` stands for."""
    build_pretrained: Callable[[str, Sizes, Architecture | None], nn.Module] | None = None
    """Builder of the encoder hf:NAME with its weights. If an architecture is given, the weights are random
    and no file is read."""
    example_spec: str = ""
    """Example of a name with numbers in it."""

    def build(self, spec: str, sizes: Sizes, load_weights: bool) -> nn.Module:
        """Build the encoder that a spec names.

        Args:
            spec: name of the encoder, or hf:NAME if the family has pre-trained encoders.
            sizes: sizes of the data.
            load_weights: False to build a pre-trained encoder from the architecture in `sizes`, with random
                weights.

        Raises:
            UsageError: if the family has no such encoder.
        """
        if self.build_pretrained and spec.startswith("hf:"):
            return self.build_pretrained(spec[3:], sizes, None if load_weights else sizes.get("architecture"))
        for name, build in self.builders.items():
            found = re.fullmatch(re.sub("[A-Z]+", r"([1-9]\\d{0,4})", re.escape(name)), spec)
            if found:
                return build(sizes, *map(int, found.groups()))
        raise self._unknown(spec)

    def _unknown(self, spec: str) -> UsageError:
        *most, last = [*self.builders, "hf:NAME"] if self.build_pretrained else self.builders
        known = f"{', '.join(most)} or {last}" if most else last
        example = f", such as {self.example_spec}" if self.example_spec else ""
        return UsageError(
            f"--encoder {spec!r} is unknown: for {self.modality_name} use {known}{example}.{suggest_similar_names(spec, self.builders)}"
        )
