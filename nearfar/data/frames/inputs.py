"""Loading of frames at the size of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.frames.dataset import Frames, split_frames
from nearfar.data.frames.load import load_all_frames


@dataclass(frozen=True)
class FrameInputs(Inputs):
    """Input loader for frames."""

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        found = self._fits(load_all_frames(spec, progress))
        splits = split_frames(found, config.seed, test_ids)
        if len(splits.train.pair_starts) < 2:
            raise UsageError(f"{found.source} has {len(found.pair_starts)} pairs of consecutive frames to learn from; more are needed")
        return splits

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        return [self._fits(load_all_frames(spec, progress))]

    def adapt(self, samples: Any) -> list[Any]:
        return [self._fits(load_all_frames(samples))]

    def _fits(self, data: Frames) -> Frames:
        if self.sizes is not None:
            wanted = tuple(self.sizes[name] for name in ("channels", "height", "width"))
            if data.shape != wanted:
                said = "{} channels of {} x {} pixels (height x width)"
                raise UsageError(f"the frames of {data.source} have {said.format(*data.shape)}; this model expects {said.format(*wanted)}")
        return data
