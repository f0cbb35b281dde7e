"""Loading of triples for training, and of entities of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import Sizes, TrainConfig
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.named_samples import VocabularySubset, get_vocabulary, select_names
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.triples.dataset import Triples
from nearfar.data.triples.load import load_triples


@dataclass(frozen=True)
class TripleInputs(Inputs):
    """Input loader for triples.

    Training data are triples. For a trained model, all data are its entities, and queries are names of
    entities.
    """

    sizes: Sizes | None = None
    tokenizer: Tokenizer | None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        names = None
        if self.sizes is not None and self.tokenizer is not None:
            names = list(get_vocabulary(self.tokenizer)), self.sizes["relations"]
        return load_triples(spec, seed=config.seed, test_ids=test_ids, names=names, on_error=config.on_error)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        """Load the entities that occur in the triples.

        They are in the order of the vocabulary.
        """
        found = self.load_splits(spec, config).train
        ids = np.unique(found.known_triples[:, [0, 2]])
        return [VocabularySubset(tuple(found.entities[i] for i in ids), ids, source=found.source)]

    def adapt(self, samples: Any) -> list[Any]:
        """Convert entity names or triples of the same entities."""
        if isinstance(samples, (Triples, VocabularySubset)):
            return [samples]
        assert self.tokenizer is not None
        return [select_names(samples, self.tokenizer, "entity")]
