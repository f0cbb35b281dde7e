"""Hooks every run has: metrics, checkpoints, and TensorBoard where it is installed."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from torch import Tensor

from nearfar.core import Embedded, NearfarError, Net
from nearfar.core.ranks import any_rank
from nearfar.train import checkpoint
from nearfar.train.fit import Diverged, Hook
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import Session

log = logging.getLogger("nearfar")


class Metrics(Hook):
    """A line of numbers every `log_every` steps, at the first step and at the last."""

    def start(self, session: Session) -> None:
        self.began = time.monotonic()

    def step(self, session: Session, values: dict[str, Tensor], z: Embedded) -> None:
        if session.step % session.machine.log_every == 0 or session.step in (1, session.steps):
            numbers = {name: float(value) for name, value in values.items()}
            session.record({**numbers, "lr": session.lr, "time": round(time.monotonic() - self.began, 3)})


class StopTogether(Hook):
    """Ranks hear of an interrupt at different moments; they end after the same step. The first hook in the row, and on every rank."""

    def step(self, session: Session, values: dict[str, Tensor], z: Embedded) -> None:
        session.interrupted = any_rank(session.signalled)

    def stop(self, session: Session) -> None:
        if session.interrupted:
            any_rank(True)  # rank 0 has saved: nobody leaves before, because torchrun ends all when one has left


class Checkpoints(Hook):
    """A checkpoint every so many steps and at the end; a full disk costs the new one, never the old.

    The last hook in the row: what the others recorded of a step is on the disk before its checkpoint is.
    """

    def __init__(self, folder: RunFolder, config: dict[str, Any]):
        self.folder, self.config = folder, config

    def step(self, session: Session, values: dict[str, Tensor], z: Embedded) -> None:
        every = session.machine.save_every or max(1, session.steps // 20)
        last = session.step == session.steps
        if session.step % every == 0 or last or session.interrupted:
            self.save(session, last)

    def save(self, session: Session, last: bool = False) -> None:
        if not _finite(session.net):
            raise Diverged(
                f"a weight became NaN or infinite at step {session.step}; the last good checkpoint is kept. Try a lower --lr or --clip 1"
            )  # fmt: skip
        try:
            checkpoint.save(self.folder.checkpoints, session.step, session.net, session.optimizers, self.config)
        except OSError as e:
            message = f"the checkpoint of step {session.step} could not be written to {self.folder.checkpoints}: {e.strerror or e}"
            if last:
                raise NearfarError(f"{message}. Make room, then `nearfar fit --resume {self.folder.path}`") from e
            log.warning("%s; training goes on, the checkpoint before it is kept", message)


def _finite(net: Net) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in net.state_dict().values() if t.is_floating_point())


class TensorBoard(Hook):
    """The same metrics for TensorBoard, in the run folder."""

    def __init__(self, folder: RunFolder):
        self.folder = folder

    def start(self, session: Session) -> None:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined]

        self.writer: Any = SummaryWriter(str(self.folder.path / "tensorboard"), purge_step=session.step + 1)
        session.recorders.append(self.write)

    def write(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, (int, float)) and name not in ("step", "time"):
                self.writer.add_scalar(name, value, values["step"])

    def stop(self, session: Session) -> None:
        self.writer.close()


def tensorboard_installed() -> bool:
    import importlib.util

    return importlib.util.find_spec("tensorboard") is not None
