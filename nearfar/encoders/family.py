"""The encoders of one kind of data: how they are asked for, chosen and built."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from nearfar.core import Sizes, UsageError
from nearfar.core.errors import suggest_similar_names

EncoderBuilder = Callable[..., nn.Module]
"""An encoder, with a `dim`, from the sizes of the data and the numbers in its name; its weights are drawn from torch's generators."""
Architecture = Mapping[str, Any]


@dataclass(frozen=True)
class EncoderFamily:
    """All that is known of the encoders for one kind of data. Each is defined below its encoders, and listed in `FAMILIES`."""

    modality_name: str
    """The data in a word."""
    size_field: str
    """What data of this kind, and no others, have among their sizes."""
    builders: Mapping[str, EncoderBuilder]
    """By name. Words in capitals stand for whole numbers: gcn-LAYERSxWIDTH is built from (sizes, layers, width)."""
    choose_default: Callable[[Sizes], str]
    """The name that `auto` stands for."""
    build_pretrained: Callable[[str, Sizes, Architecture | None], nn.Module] | None = None
    """The encoder hf:NAME: with its weights or, of a given architecture, with random ones, and no file is read."""
    example_spec: str = ""
    """A name with numbers in it."""

    def build(self, spec: str, sizes: Sizes, load_weights: bool) -> nn.Module:
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
