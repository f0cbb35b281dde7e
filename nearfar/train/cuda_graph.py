"""A step recorded once and replayed: on CUDA, some thousand launches become one.

A step of a small encoder is some thousand kernels of a few microseconds; launching them one by one takes the host longer than
running them takes the GPU. What is recorded is views, `embed`, `objective` and the backward pass of one chunk on one rank. It is
replayed only where that is the same as running it: no keyed number may depend on the step but through slots (which are an input), and
nothing may wait for the GPU. What torch draws by itself, dropout's masks, is as ever: a replay reads the generator's seed, which is set
before every step. Where a step cannot be recorded, it is run as ever, and the log says why.
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
"""Steps that run as ever first: libraries make their workspaces, compilers compile."""

StepResult = tuple[dict[str, Tensor], Embeddings]


class RecordingError(Exception):
    """This step is not the same every time."""


class UnrecordableKey(RandomKey):
    """Stands in for a key that differs from step to step; a draw from it cannot be recorded."""

    def __call__(self, *names: Any) -> RandomKey:
        return self

    @property
    def hash_value(self) -> int:
        raise RecordingError("it draws random numbers that depend on the step")


class StepRecorder:
    """`Recorder(run, params)(similarity, raw, rows)`: what `run` gives, and its gradients in `p.grad`, replayed from the fourth call on.

    A new similarity (after a refresh) is recorded anew. Results live in memory that the next call overwrites; what has to
    outlast it is copied. Torch's generators are the caller's to seed.
    """

    def __init__(self, step_function: Callable[[Similarity, RawBatch, Rows], StepResult], params: list[nn.Parameter]):
        self.step_function, self.params = step_function, params
        self.similarity: Similarity | None = None
        self.calls = 0
        self.cuda_graph: torch.cuda.CUDAGraph | None = None
        self.failed = False

    def is_ready(self, similarity: Similarity) -> bool:
        """Whether the next call can be a replay; counts the calls before."""
        if similarity is not self.similarity:
            self.similarity, self.calls, self.cuda_graph = similarity, 0, None
        self.calls += 1
        return not self.failed and self.calls > WARMUP_STEPS

    def __call__(self, similarity: Similarity, raw: RawBatch, rows: Rows) -> StepResult | None:
        """None where it cannot be recorded, or where a step has another shape than the recorded one."""
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
        except Exception as e:  # whatever it is, the step still runs without a graph; a real error shows itself there
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
    """Let torch's CUDA generator draw again after a recording that failed.

    When CUDA ends a capture with an error, torch leaves its generator in capture mode: the next dropout in this process would raise
    "Offset increment outside graph capture". The end of any successful capture resets the mode, so a trivial one is made.
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
    """The tensors of a structure, in order; numpy arrays (ids and slots) as tensors too."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [t for part in tree for t in _tensors(part)]
    return [torch.as_tensor(tree)] if isinstance(tree, (Tensor, np.ndarray)) else []


def _others(tree: Any) -> list[Any]:
    """What is no tensor: sizes and the like, which a recording takes for constant."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [x for part in tree for x in _others(part)]
    return [] if isinstance(tree, (Tensor, np.ndarray)) else [tree]
