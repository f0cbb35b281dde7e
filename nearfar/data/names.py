"""Things that have a name and a number: how their names travel with a run, and how a user asks for some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError, did_you_mean
from nearfar.data.corpus import Words, numbers, word_tokenizer
from nearfar.data.tokens import Tokenizer

RESERVED = "[UNK]"
"""What a vocabulary of words calls everything else."""
MOST_COMPARED = 20_000
"""Among more names than these no similar ones are looked for: it would take seconds."""


def check_names(names: list[str]) -> list[str]:
    """The same names, none of which is taken."""
    if RESERVED in names:
        raise UsageError(f"the name {RESERVED!r} stands for whatever is unknown: give that entity another one")
    return names


def name_tokenizer(names: Sequence[str]) -> Tokenizer:
    """Names, each with the number of its position, in the form in which a run keeps a vocabulary."""
    return word_tokenizer(names)


def named(what: Any, tokenizer: Tokenizer, kind: str) -> Words:
    """Those that a user names, one or a list; an unknown name is an error."""
    number = numbers(tokenizer)
    names = [what] if isinstance(what, str) else list(what)
    for name in names:
        if name not in number:
            close = did_you_mean(str(name), number) if len(number) <= MOST_COMPARED else ""
            raise UsageError(f"{name!r} is no {kind} of this run, which knows {len(number):,}.{close}")
    return Words(tuple(names), np.array([number[name] for name in names], dtype=np.int64), source=f"{len(names)} names")


def every_name(tokenizer: Tokenizer) -> Words:
    """All that a run knows, in order."""
    number = numbers(tokenizer)
    return Words(tuple(number), np.arange(len(number)), source=f"{len(number)} names")
