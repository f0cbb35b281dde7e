"""Terminal output: progress bars, progress lines, log messages and tables.

Results go to stdout. Everything else in this module goes to stderr, so that `--json` prints pure JSON.
Without rich, or if the output is a file or a pipe, the same text is printed without formatting.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from nearfar.core import Embeddings, ranks
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook

TERMINAL_REFRESH_SECONDS, PIPE_REFRESH_SECONDS = 0.2, 30.0
"""Seconds between two refreshes on a terminal, and between two lines in a file or pipe."""
CLEAR_LINE = "\r\x1b[K"


def _watched(stream: Any) -> bool:
    return stream.isatty()


def _rich(stream: Any) -> bool:
    return _watched(stream) and importlib.util.find_spec("rich") is not None


class _Console(logging.Handler):
    """Log handler that writes to the current `sys.stderr`.

    The progress bar replaces `sys.stderr` while it is drawn.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record.

        Warnings and errors get a prefix.
        """
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"nearfar: {record.levelname.lower()}: {text}"
            text = f"\x1b[33m{text}\x1b[0m" if _watched(sys.stderr) else text
        print(text, file=sys.stderr)


def log_to_console(verbose: bool = False, quiet: bool = False) -> None:
    """Print log messages of nearfar to stderr.

    The logger itself passes all messages from level info on, for the log file of the run.

    Args:
        verbose: also print debug messages.
        quiet: print errors only.
    """
    logger = logging.getLogger("nearfar")
    for handler in [h for h in logger.handlers if isinstance(h, _Console)]:
        logger.removeHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
    logger.addHandler(_Console(logging.ERROR if quiet else logger.level))


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
        self.watched = _watched(sys.stderr)
        self.every = TERMINAL_REFRESH_SECONDS if self.watched else PIPE_REFRESH_SECONDS
        self.pace = TrainingPace(session.step)
        self.loss: float | None = None
        self.values: dict[str, Tensor] = {}
        self.drawn: Any = None
        if self.quiet or ranks.get_rank() != 0:
            return
        self.due = time.monotonic() + self.every
        if _rich(sys.stderr):
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
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
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
            begin, end = (CLEAR_LINE, "") if self.watched else ("", "\n")
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


def show_progress(label: str, quiet: bool = False) -> Callable[[int, int], None]:
    """Return a callback (done, total) that prints the progress.

    On a terminal it rewrites one line and removes it at the end. Elsewhere it prints one line every 30 s.
    """
    watched = _watched(sys.stderr) and not quiet
    every = float("inf") if quiet else TERMINAL_REFRESH_SECONDS if watched else PIPE_REFRESH_SECONDS
    due = time.monotonic() + every

    def show(done: int, total: int) -> None:
        nonlocal due
        if watched and done >= total:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= due:
            due = time.monotonic() + every
            begin, end = (CLEAR_LINE, "") if watched else ("", "\n")
            print(f"{begin}{label} {done:,}/{total:,}", end=end, file=sys.stderr, flush=True)

    return show


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout.

    On a terminal rich fits it to the width. Elsewhere it has plain columns, one row per line.
    """
    if _rich(sys.stdout):
        _print_rich(heads, rows)
        return
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[:-1]:  # only the last column wraps
        column.no_wrap = True
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
