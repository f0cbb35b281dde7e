"""Frames of games, of the size a net was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.core import Run, Sizes, UsageError
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.splits import Splits
from nearfar.data.frames.dataset import Frames, divide_frames
from nearfar.data.frames.load import read_frames


@dataclass(frozen=True)
class FrameInputs(Inputs):
    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        found = self._fits(read_frames(spec, progress))
        splits = divide_frames(found, run.seed, split)
        if len(splits.train.successors) < 2:
            raise UsageError(f"{found.source} has {len(found.successors)} pairs of consecutive frames to learn from; more are needed")
        return splits

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        return [self._fits(read_frames(spec, progress))]

    def accept(self, what: Any) -> list[Any]:
        return [self._fits(read_frames(what))]

    def _fits(self, data: Frames) -> Frames:
        if self.sizes is not None:
            wanted = tuple(self.sizes[name] for name in ("channels", "height", "width"))
            if data.shape != wanted:
                said = "{} channels of {} x {} pixels (height x width)"
                raise UsageError(f"the frames of {data.source} have {said.format(*data.shape)}; this net takes {said.format(*wanted)}")
        return data
