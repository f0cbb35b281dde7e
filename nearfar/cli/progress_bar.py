"""Progress bar of a training. This module imports torch, which other commands do not need."""

from __future__ import annotations

import sys
import time
from typing import Any

from torch import Tensor

from nearfar.cli import terminal
from nearfar.core import Embeddings, ranks
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook


class TrainingPace:
    """Training speed in steps per second: over the last refreshes and over the whole process."""

    def __init__(self, step: int):
        self.first, self.began = step, time.monotonic()
        self.last, self.at = step, self.began
        self.rate = 0.0

    def measure(self, step: int) -> None:
        """Update the recent speed."""
        now = time.monotonic()
        rate = (step - self.last) / max(now - self.at, 1e-9)
        self.rate = 0.8 * self.rate + 0.2 * rate if self.rate else rate
        self.last, self.at = step, now

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    @property
    def mean(self) -> float:
        """Return the mean speed since the start, in steps per second."""
        return (self.last - self.first) / max(self.seconds, 1e-9)


class ProgressBar(Hook):
    """Progress bar of a training: loss, speed and remaining time.

    A step between two refreshes only reads the clock. The loss may still be in computation on a GPU, so it is
    read only when it is shown.
    """

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.due = float("inf")

    def start(self, session: TrainingSession) -> None:
        """Start the bar on rank 0."""
        self.watched = terminal.is_terminal(sys.stderr)
        self.every = terminal.TERMINAL_REFRESH_SECONDS if self.watched else terminal.PIPE_REFRESH_SECONDS
        self.pace = TrainingPace(session.step)
        self.loss: float | None = None
        self.values: dict[str, Tensor] = {}
        self.drawn: Any = None
        if self.quiet or ranks.get_rank() != 0:
            return
        self.due = time.monotonic() + self.every
        if terminal.uses_rich(sys.stderr):
            self.drawn = _bar(session)

    def step(self, session: TrainingSession, values: dict[str, Tensor], z: Embeddings) -> None:
        """Refresh the bar if the refresh is due."""
        self.values = values
        if time.monotonic() >= self.due:
            self._refresh(session)
            self.due = time.monotonic() + self.every

    def stop(self, session: TrainingSession) -> None:
        """Remove the bar and print a last line."""
        if self.due == float("inf"):
            return
        if self.drawn:
            self.drawn.stop()
        elif self.watched:
            print(terminal.CLEAR_LINE, end="", file=sys.stderr, flush=True)
        print(self._last_words(session), file=sys.stderr, flush=True)

    def _refresh(self, session: TrainingSession) -> None:
        self.pace.measure(session.step)
        if "loss" in self.values:  # models fitted in closed form have no loss
            loss = float(self.values["loss"])
            self.loss = loss if self.loss is None else 0.7 * self.loss + 0.3 * loss
        text = self._words(session)
        if self.drawn:
            self.drawn.update(self.drawn.task_ids[0], completed=session.step, text=text, refresh=True)
        else:
            begin, end = (terminal.CLEAR_LINE, "") if self.watched else ("", "\n")
            print(f"{begin}step {session.step}/{session.steps}  {text}", end=end, file=sys.stderr, flush=True)

    def _words(self, session: TrainingSession) -> str:
        left = (session.steps - session.step) / max(self.pace.mean, 1e-9)
        speed = _speed(self.pace.rate, session.config.batch_size or 0)
        loss = "" if self.loss is None else f"loss {self.loss:.4g}  "
        return f"{loss}{speed}  {_clock(self.pace.seconds)} passed, {_clock(left)} left"

    def _last_words(self, session: TrainingSession) -> str:
        """Return the last line: step, loss and speed.

        The loss is read only after a complete training. After an error a GPU may be unable to return it.
        """
        self.pace.last = session.step
        loss = f"loss {float(self.values['loss']):.4g}  " if self.values and session.step == session.steps else ""
        return (
            f"step {session.step}/{session.steps}  {loss}"
            f"{_speed(self.pace.mean, session.config.batch_size or 0)}  {_clock(self.pace.seconds)}"
        )


def _bar(session: TrainingSession) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[text]}", markup=False))
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    bar.add_task("", total=session.steps, completed=session.step, text="")
    bar.start()
    return bar


def _speed(rate: float, batch: int) -> str:
    return f"{rate:,.3g} steps/s  {rate * batch:,.0f} samples/s"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
