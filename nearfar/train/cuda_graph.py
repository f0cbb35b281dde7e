"""CUDA graph of a training step: record the step once, then replay it.

A step of a small encoder is about a thousand kernels of a few microseconds. To launch them one by one takes
longer on the host than to run them takes on the GPU. A replay needs a single launch. The recording covers
views, `embed`, `objective` and the backward pass of one chunk on one rank.

A step is replayed only if the result is the same as without recording. Random numbers may depend on the step
only through slots, which are an input, and nothing may wait for the GPU. Torch's own random numbers, such as
dropout masks, are correct: a replay reads the seed of the generator, which is set before each step. If a step
cannot be recorded, it runs as usual and the log gives the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nearfar.core import Embeddings, RandomKey, RawBatch, Rows, Similarity

logger = logging.getLogger("nearfar")

WARMUP_STEPS = 3
"""Steps that run as usual before the recording. Libraries allocate memory and compilers
compile in them."""

StepResult = tuple[dict[str, Tensor], Embeddings]


class RecordingError(Exception):
    """Step that cannot be recorded because it is not the same every time."""


class UnrecordableKey(RandomKey):
    """Random key of a step that is being recorded.

    It stands for a key that differs from step to step. A draw from it raises `RecordingError`.
    """

    def __call__(self, *names: Any) -> RandomKey:
        return self

    @property
    def hash_value(self) -> int:
        """Raise `RecordingError` on every draw."""
        raise RecordingError("it draws random numbers that depend on the step")


class StepRecorder:
    """Recorder of a step function. It replays the step from the fourth call on.

    `StepRecorder(step_function, params)(similarity, raw, rows)` returns the result of `step_function` and
    leaves its gradients in `p.grad`. A new similarity (after a refresh) is recorded again. The next call
    overwrites the memory of the result, so copy what must be kept. The caller seeds torch's generators.
    """

    def __init__(self, step_function: Callable[[Similarity, RawBatch, Rows], StepResult], params: list[nn.Parameter]):
        self.step_function, self.params = step_function, params
        self.similarity: Similarity | None = None
        self.calls = 0
        self.cuda_graph: torch.cuda.CUDAGraph | None = None
        self.failed = False

    def is_ready(self, similarity: Similarity) -> bool:
        """Return True if the next call can be a replay.

        Each call of this method counts as a step.
        """
        if similarity is not self.similarity:
            self.similarity, self.calls, self.cuda_graph = similarity, 0, None
        self.calls += 1
        return not self.failed and self.calls > WARMUP_STEPS

    def __call__(self, similarity: Similarity, raw: RawBatch, rows: Rows) -> StepResult | None:
        """Replay the step.

        Returns None if the step cannot be recorded, or if its shapes differ from the recorded ones.
        """
        if self.cuda_graph is None and not self._record(similarity, raw, rows):
            return None
        assert self.cuda_graph is not None
        given = _tensors((raw, rows.ids, rows.slots))
        if [t.shape for t in given] != [t.shape for t in self.inputs] or _others(raw) != self.others:
            return None
        for held, new in zip(self.inputs, given, strict=True):
            held.copy_(new, non_blocking=True)
        self.cuda_graph.replay()
        for p, grad in self.grads:
            p.grad = grad
        values, z = self.outcome
        return {k: v.clone() for k, v in values.items()}, z

    def _record(self, similarity: Similarity, raw: RawBatch, rows: Rows) -> bool:
        device = self.params[0].device
        ids, slots = (torch.as_tensor(x).to(device) for x in (rows.ids, rows.slots))
        held = _map(lambda t: t.clone(), raw)
        self.inputs, self.others = _tensors((held, ids, slots)), _others(raw)
        for p in self.params:
            p.grad = None
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.outcome = self.step_function(similarity, held, Rows(ids, slots, None))  # type: ignore[arg-type]
        except Exception as e:  # the step then runs without a graph, where a real error is raised again
            logger.info("this step runs without a CUDA graph: %s", str(e).splitlines()[0] if str(e) else type(e).__name__)
            self.failed = True
            if device.type == "cuda":
                reset_generator_capture(device)
            for p in self.params:
                p.grad = None
            return False
        self.grads = [(p, p.grad) for p in self.params if p.grad is not None]
        self.cuda_graph = graph
        return True


def reset_generator_capture(device: torch.device) -> None:
    """Reset torch's CUDA generator after a failed recording.

    If CUDA ends a capture with an error, torch leaves its generator in capture mode. The next dropout in this
    process would then raise "Offset increment outside graph capture". The end of any successful capture
    resets the mode, so this function makes a trivial capture.
    """
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device=device)


def _map(fn: Callable[[Tensor], Tensor], raw: Any) -> Any:
    if isinstance(raw, Tensor):
        return fn(raw)
    if isinstance(raw, dict):
        return {k: _map(fn, v) for k, v in raw.items()}
    if isinstance(raw, (list, tuple)):
        return type(raw)(_map(fn, v) for v in raw)
    return raw


def _tensors(tree: Any) -> list[Tensor]:
    """Return the tensors of a structure in order. Numpy arrays (ids and slots) are converted."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [t for part in tree for t in _tensors(part)]
    return [torch.as_tensor(tree)] if isinstance(tree, (Tensor, np.ndarray)) else []


def _others(tree: Any) -> list[Any]:
    """Return the values that are not tensors, such as sizes.

    A recording treats them as constants.
    """
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [x for part in tree for x in _others(part)]
    return [] if isinstance(tree, (Tensor, np.ndarray)) else [tree]
