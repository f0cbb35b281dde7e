"""Errors that a user sees as one message, without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NearfarError(Exception):
    """Error that a user can act on.

    The message says what is wrong, where, and what to do.
    """

    exit_code = 1


class UsageError(NearfarError, ValueError):
    """Invalid request: an unknown name, a bad value or a missing file."""

    exit_code = 2


class DataError(NearfarError, ValueError):
    """Invalid input of a measure: wrong values, shapes or settings.

    An example is NaN in the features of a run.
    """


class MissingExtra(UsageError):
    """Missing optional dependency."""

    def __init__(self, package: str, extra: str, feature: str):
        super().__init__(f"{feature} needs the package '{package}', which is not installed: pip install 'nearfar[{extra}]'")


def suggest_similar_names(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'simclr'?"`, or an empty string if no known word is similar."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
