"""Progress callbacks of long operations."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[int, int], None]
"""Function called with the number of finished units and their total during reading, encoding or measuring."""
