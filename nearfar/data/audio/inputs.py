"""Loading of sounds at the sample rate and clip length of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.audio.dataset import split_sounds
from nearfar.data.audio.load import load_all_sounds
from nearfar.data.audio.readers import (
    SoundReadOptions,
)
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits


@dataclass(frozen=True)
class AudioInputs(Inputs):
    """Input loader for sounds."""

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        found = load_all_sounds(spec, self._read_options(config, progress))
        if len(found) < 2:
            raise UsageError(f"{found.source} has {len(found)} sound to learn from; at least 2 are needed")
        return split_sounds(Splits(found, None), config.seed, test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        return [load_all_sounds(spec, self._read_options(config, progress))]

    def adapt(self, samples: Any) -> list[Any]:
        return [load_all_sounds(samples, self._read_options(TrainConfig()))]

    def _read_options(self, config: TrainConfig, progress: ProgressCallback | None = None) -> SoundReadOptions:
        if self.sizes is None:
            return SoundReadOptions(config.sample_rate, None, config.seconds, config.on_error, progress)
        return SoundReadOptions(self.sizes["sample_rate"], self.sizes["samples"], None, config.on_error, progress)
