"""`python -m nearfar`."""

from __future__ import annotations

import atexit
import os
import sys

from nearfar.cli.main import main


def _leave(code: int) -> None:
    """End the process; one of several ranks without taking the interpreter apart.

    The threads of a process group may still be letting go of tensors, for which they need the interpreter: one that finds it
    half gone aborts the process, and torchrun would call a finished run a failure.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
