"""Training loop shared by all recipes."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nearfar.core import Embeddings, NearfarError, Recipe, UsageError
from nearfar.train.loader import StepDataset, iterate_batches
from nearfar.train.row_adagrad import densify
from nearfar.train.schedules import compute_learning_rate
from nearfar.train.session import TrainingSession

logger = logging.getLogger("nearfar")


class Hook:
    """Base class of hooks: code that runs during the training, such as logging or saving.

    Override the methods you need. A hook sees the session after each step and must not change it. Hooks never
    alter the result of the training.
    """

    def start(self, session: TrainingSession) -> None:
        """Run before the first step of this process."""

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        """Run after each step.

        Args:
            session: the training. `session.step` is the number of the step, counted from 1.
            values: values that the objective logged.
            z: tensors of the global batch.
        """

    def stop(self, session: TrainingSession) -> None:
        """Run after the last step of this process, also after an error.

        The hook that started last stops first.
        """


def check_hooks(hooks: Any) -> None:
    """Check that hooks are a list of `Hook` objects, before anything is read or written.

    Raises:
        UsageError: if they are anything else.
    """
    listed = isinstance(hooks, (list, tuple))
    for hook in hooks if listed else [hooks]:
        if not (listed and isinstance(hook, Hook)):
            found = f"the class {hook.__name__}" if isinstance(hook, type) else repr(hook)
            raise UsageError(f"hooks= must be a list of instances of subclasses of nearfar.Hook, as in hooks=[MyHook()]; got {found}")


class DivergenceError(NearfarError):
    """Loss or weight that is NaN or infinite."""


def train(session: TrainingSession, hooks: Sequence[Hook] = ()) -> None:
    """Train from `session.step` to the end of the run.

    Args:
        session: the training.
        hooks: hooks to call, in this order.
    """
    session.net.train()
    # Each step seeds torch's generators for dropout. The caller's generators are restored afterwards.
    with torch.random.fork_rng(), contextlib.ExitStack() as started:
        for hook in hooks:
            hook.start(session)
            started.callback(hook.stop, session)
        for start, stop in _epochs(session):
            _train_epoch(session, start, stop, hooks)
        if session.steps == 0:
            _fit_once(session, hooks)


def _epochs(session: TrainingSession) -> Iterator[tuple[int, int]]:
    """Yield the ranges of steps between refreshes.

    If the recipe never refreshes, the rest of the run is one range.
    """
    if type(session.recipe).refresh is Recipe.refresh:
        yield session.step, session.steps
        return
    while session.step < session.steps:
        per = session.plan.steps_per_epoch
        epoch, into = divmod(session.step, per)
        if into == 0:
            session.refresh(epoch)
        yield session.step, min((epoch + 1) * per, session.steps)


def _fit_once(session: TrainingSession, hooks: Sequence[Hook]) -> None:
    """Run a recipe without training steps.

    Its refresh is the whole run, and step 0 is its only step.
    """
    session.refresh(0)
    for hook in hooks:
        hook.step(session, {}, {})


def _train_epoch(session: TrainingSession, start: int, stop: int, hooks: Sequence[Hook]) -> None:
    config, runtime = session.config, session.runtime
    similarity = session.similarity()
    steps = StepDataset(session.data, similarity, session.plan, session.rng_key("read"), runtime.chunk_size)
    guard = LossGuard()
    for t, parts, raws in iterate_batches(steps, start, stop, runtime.num_workers, session.device):
        values: dict[str, Tensor] = {}
        z: Embeddings = {}
        session.lr = compute_learning_rate((t + 0.5) / session.steps, config.lr, config.schedule, config.warmup_ratio)
        for turn, grad_step, optimizer in zip(session.phases, session.grad_steps, session.optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            found, z_turn = grad_step(similarity, raws, parts, t)
            values, z = values | found, z | z_turn
            guard.check(t, found["loss"])
            if config.grad_clip:
                densify(grad_step.params)
                values["gradient"] = torch.nn.utils.clip_grad_norm_(grad_step.params, config.grad_clip)
            for group in optimizer.param_groups:
                group["lr"] = session.lr
            optimizer.step()
            with torch.no_grad():
                turn.update(session.net, z_turn, (t + 1) / session.steps)
        session.step = t + 1
        for hook in hooks:
            hook.step(session, values, z)
        if session.interrupted and session.step < session.steps:
            raise KeyboardInterrupt
    guard.finish()


class LossGuard:
    """Guard that stops a run with a loss of NaN or infinity before the optimizer step.

    On CUDA, losses are copied to the host while the GPU continues. They are checked on arrival, a few steps
    later. A checkpoint with a weight that is not finite is never written.
    """

    MAX_STEPS_BEHIND = 4
    """Maximum number of steps that the host is ahead of the GPU."""

    def __init__(self):
        self.pending: deque[tuple[int, Tensor, torch.cuda.Event]] = deque()

    def check(self, step: int, loss: Tensor) -> None:
        """Check the loss of a step. On CUDA, check the losses that have arrived."""
        if not loss.is_cuda:
            return self._raise_unless_finite(step, loss)
        arriving = torch.empty((), pin_memory=True).copy_(loss, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.pending.append((step, arriving, arrived))
        while self.pending and (len(self.pending) > self.MAX_STEPS_BEHIND or self.pending[0][2].query()):
            self._look()

    def finish(self) -> None:
        """Wait for all remaining losses and check them."""
        while self.pending:
            self._look()

    def _look(self) -> None:
        step, loss, arrived = self.pending.popleft()
        arrived.synchronize()
        self._raise_unless_finite(step, loss)

    def _raise_unless_finite(self, step: int, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            raise DivergenceError(
                f"the loss became {loss.item()} at step {step + 1}; the last good checkpoint is kept. "
                "Try a lower --lr, --grad-clip 1, --precision fp32, or a higher temperature where the recipe has one"
            )
