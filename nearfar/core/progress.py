"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[int, int], None]
"""Called with the number of finished units and their total while something is read, encoded or measured."""
