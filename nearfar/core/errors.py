"""What a user reads when something is wrong: one message, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NearfarError(Exception):
    """Something a user can act on. The message says what was wrong, where, and what to do."""

    exit_code = 1


class UsageError(NearfarError, ValueError):
    """Wrong request: an unknown name, a bad value, a missing file."""

    exit_code = 2


class DataError(NearfarError, ValueError):
    """Wrong values, shapes or settings in what a measure was given, such as NaN in the features of a run."""


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, feature: str):
        super().__init__(f"{feature} needs the package '{package}', which is not installed: pip install 'nearfar[{extra}]'")


def suggest_similar_names(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'simclr'?"`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
