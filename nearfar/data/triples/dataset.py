"""Knowledge graphs as triples (head, relation, tail), one per line, with tabs between the three names.

a folder        train.txt, test.txt and optionally valid.txt; train.txt defines the entities and relations,
                and the other files contain none of its triples
a file          all triples; some are held out for testing, and every name in them also occurs in the
                remaining triples
'python'        statements about the classes of Python's standard library
in Python       a list of (head, relation, tail)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.named_samples import NamedSamples

TripleIds = Int64[np.ndarray, "_ 3"]
Triple = tuple[str, str, str]
NumberedTriple = tuple[int, Triple]
"""Line number and triple."""


@dataclass(frozen=True, eq=False)
class Triples(NamedSamples):
    """True triples.

    The samples are the entities, which such a method represents. `len`, `read` and `name` refer to entities.
    Training draws rows of `triples`.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: TripleIds
    """Numbers of head, relation and tail."""
    valid_triples: TripleIds
    """Triples for choosing settings. Empty if the source has none."""
    known_triples: TripleIds
    """All true triples of all splits. A filtered rank ignores them."""
    source: str = ""
    skipped: tuple[str, ...] = ()
    """Descriptions of triples that were skipped because they could not be read."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.entities

    @cached_property
    def fingerprint(self) -> str:
        return hash_bytes("\n".join(self.entities + self.relations).encode(), self.triples.tobytes())

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "words": len(self), "relations": list(self.relations)}
