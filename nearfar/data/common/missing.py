"""What a user reads who asks for data that are not there."""

from __future__ import annotations

from collections.abc import Collection

from nearfar.core.errors import UsageError, did_you_mean


def missing(text: str, names: Collection[str], what: str = "data") -> UsageError:
    """`names`: the data that have a name instead of a path."""
    known = ", ".join(names)
    return UsageError(f"no {what} {text!r}: there is no such file or folder, nor such a name ({known}).{did_you_mean(text, names)}")
