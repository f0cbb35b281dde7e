"""Error for data that cannot be found."""

from __future__ import annotations

from collections.abc import Collection

from nearfar.core.errors import UsageError, suggest_similar_names


def build_missing_data_error(spec: str, known_names: Collection[str], description: str = "data") -> UsageError:
    """Build the error for data that cannot be found.

    Args:
        spec: Name or path that the user gave.
        known_names: Names of the built-in data, which need no path.
        description: Noun for the data in the message.
    """
    known = ", ".join(known_names)
    return UsageError(
        f"no {description} {spec!r}: there is no such file, folder or name ({known}).{suggest_similar_names(spec, known_names)}"
    )
