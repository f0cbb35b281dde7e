"""The run-time type checker of the tests: beartype, for which an int is a float too (PEP 484)."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
