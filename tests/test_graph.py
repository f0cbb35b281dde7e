"""Recording a step, as far as a machine without CUDA can tell: what may be recorded, and that everything else runs as ever.

That replays equal ordinary steps is checked on a GPU, for every recipe, by benchmarks/gpu.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny_session
from torch import nn

from nearfar.core import RandomKey, Rows
from nearfar.similarity import simclr_views
from nearfar.train import cuda_graph as graph
from nearfar.train.cuda_graph import RecordingError, StepRecorder, UnrecordableKey


def test_a_key_of_one_step_cannot_be_drawn_from_while_recording():
    key = UnrecordableKey(0)
    for draw in ("uniform", "normal", "bits"):
        with pytest.raises(RecordingError, match="depend on the step"):
            getattr(key("noise", 3), draw)(torch.arange(4), 2)
    assert isinstance(key, RandomKey)


def test_where_recording_fails_the_step_runs_without_and_the_log_says_why(caplog):
    parameter = nn.Parameter(torch.ones(2))
    recorder = StepRecorder(lambda similarity, raw, rows: ({}, {}), [parameter])
    similarity, rows = simclr_views(8), Rows(np.arange(2), np.arange(2), np.arange(2))
    assert [recorder.is_ready(similarity) for _ in range(graph.WARMUP_STEPS + 1)] == [False] * graph.WARMUP_STEPS + [True]
    with caplog.at_level("INFO", logger="nearfar"):
        assert recorder(similarity, {"image": torch.ones(2)}, rows) is None
    assert "without a CUDA graph" in caplog.text
    assert not recorder.is_ready(similarity), "what failed once is not tried again"
    assert parameter.grad is None


def test_a_new_similarity_begins_anew():
    recorder = StepRecorder(lambda *_: ({}, {}), [])
    first, second = simclr_views(8), simclr_views(8)
    for _ in range(graph.WARMUP_STEPS):
        recorder.is_ready(first)
    assert not recorder.is_ready(second), "what was recorded before a refresh is not replayed after it"


def test_tensors_of_a_batch_are_found_in_a_fixed_order():
    raw = {"a": torch.zeros(1), "b": [torch.ones(1), (torch.full((1,), 2.0),)], "c": None}
    found = graph._tensors((raw, np.array([3.0]), np.array([4.0])))
    assert [float(t) for t in found] == [0, 1, 2, 3, 4]


def test_without_cuda_nothing_is_recorded():
    session = tiny_session("simclr", steps=2, batch_size=32)
    assert all(step.recorder is None for step in session.grad_steps)
