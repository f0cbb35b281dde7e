"""Hooks of every run: metrics, checkpoints and, if it is installed, TensorBoard."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from torch import Tensor

from nearfar.core import Embeddings, NearfarError, Net
from nearfar.core.ranks import is_set_on_any_rank
from nearfar.train import checkpoint
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import DivergenceError, Hook

logger = logging.getLogger("nearfar")


class MetricsHook(Hook):
    """Hook that records metrics at the first step, every `log_every` steps and at the last step."""

    def start(self, session: TrainingSession) -> None:
        self.began = time.monotonic()

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        if session.step % session.runtime.log_every == 0 or session.step in (1, session.steps):
            numbers = {name: float(value) for name, value in values.items()}
            session.record_metrics({**numbers, "lr": session.lr, "time": round(time.monotonic() - self.began, 3)})


class SynchronizedStopHook(Hook):
    """Hook that lets all ranks stop after the same step.

    Ranks receive an interrupt at different moments. This hook runs on every rank, before all other hooks.
    """

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        session.interrupted = is_set_on_any_rank(session.signaled)

    def stop(self, session: TrainingSession) -> None:
        if session.interrupted:
            # Wait until rank 0 has saved: torchrun ends all ranks as soon as one has left.
            is_set_on_any_rank(True)


class CheckpointHook(Hook):
    """Hook that saves a checkpoint every `save_every` steps and at the end.

    The default is every 5 % of the steps. If the disk is full, the new checkpoint is lost and the old one is
    kept. This is the last hook: the records of the other hooks for a step are on the disk before the
    checkpoint of that step.
    """

    def __init__(self, run_folder: RunFolder, stored_config: dict[str, Any]):
        self.run_folder, self.stored_config = run_folder, stored_config

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        every = session.runtime.save_every or max(1, session.steps // 20)
        last = session.step == session.steps
        if session.step % every == 0 or last or session.interrupted:
            self.save(session, last)

    def save(self, session: TrainingSession, last: bool = False) -> None:
        """Save a checkpoint of the current step.

        Args:
            session: the training.
            last: True at the end of the training.

        Raises:
            DivergenceError: if a weight is NaN or infinite.
            NearfarError: if the last checkpoint cannot be written. An earlier one is logged as a warning.
        """
        if not _finite(session.net):
            raise DivergenceError(
                f"a weight became NaN or infinite at step {session.step}; the last good checkpoint is kept. "
                "Try a lower --lr or --grad-clip 1"
            )  # fmt: skip
        try:
            checkpoint.save_checkpoint(
                self.run_folder.checkpoints_folder, session.step, session.net, session.optimizers, self.stored_config
            )
        except OSError as e:
            message = (
                f"the checkpoint of step {session.step} could not be written to {self.run_folder.checkpoints_folder}: {e.strerror or e}"
            )
            if last:
                raise NearfarError(f"{message}. Free some disk space, then `nearfar fit --resume {self.run_folder.path}`") from e
            logger.warning("%s; training continues, the previous checkpoint is kept", message)


def _finite(net: Net) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in net.state_dict().values() if t.is_floating_point())


class TensorBoardHook(Hook):
    """Hook that writes the metrics for TensorBoard into the run folder."""

    def __init__(self, run_folder: RunFolder):
        self.run_folder = run_folder

    def start(self, session: TrainingSession) -> None:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined]

        self.writer: Any = SummaryWriter(str(self.run_folder.path / "tensorboard"), purge_step=session.step + 1)
        session.metric_recorders.append(self.write)

    def write(self, values: dict[str, Any]) -> None:
        """Write the metrics of one step."""
        for name, value in values.items():
            if isinstance(value, (int, float)) and name not in ("step", "time"):
                self.writer.add_scalar(name, value, values["step"])

    def stop(self, session: TrainingSession) -> None:
        self.writer.close()


def is_tensorboard_installed() -> bool:
    """Return True if TensorBoard is installed."""
    import importlib.util

    return importlib.util.find_spec("tensorboard") is not None
