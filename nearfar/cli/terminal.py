"""Terminal output: progress lines, log messages and tables. `progress_bar` has the bar of a training.

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

TERMINAL_REFRESH_SECONDS, PIPE_REFRESH_SECONDS = 0.2, 30.0
"""Seconds between two refreshes on a terminal, and between two lines in a file or pipe."""
CLEAR_LINE = "\r\x1b[K"


def is_terminal(stream: Any) -> bool:
    """Return True if a person sees the stream, not a file or another program."""
    return stream.isatty()


def uses_rich(stream: Any) -> bool:
    """Return True if rich is installed and the stream is a terminal."""
    return is_terminal(stream) and importlib.util.find_spec("rich") is not None


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
            text = f"\x1b[33m{text}\x1b[0m" if is_terminal(sys.stderr) else text
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


def show_progress(label: str, quiet: bool = False) -> Callable[[int, int], None]:
    """Return a callback (done, total) that prints the progress.

    On a terminal it rewrites one line and removes it at the end. Elsewhere it prints one line every 30 s.
    """
    watched = is_terminal(sys.stderr) and not quiet
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
    if uses_rich(sys.stdout):
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
