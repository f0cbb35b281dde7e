"""What a user reads who asks for data that are not there."""

from __future__ import annotations

from collections.abc import Collection

from nearfar.core.errors import UsageError, suggest_similar_names


def build_missing_data_error(spec: str, known_names: Collection[str], description: str = "data") -> UsageError:
    """`names`: the data that have a name instead of a path."""
    known = ", ".join(known_names)
    return UsageError(
        f"no {description} {spec!r}: there is no such file or folder, nor such a name ({known}).{suggest_similar_names(spec, known_names)}"
    )
