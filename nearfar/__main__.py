"""Entry point of `python -m nearfar`."""

from __future__ import annotations

import atexit
import os
import sys

from nearfar.cli.main import main


def _leave(code: int) -> None:
    """End the process.

    Skip the interpreter's shutdown if this process is one of several ranks. Threads of a process group may
    still release tensors, and they need the interpreter for this. If the interpreter is partly shut down,
    such a thread aborts the process. torchrun would then report a finished run as failed.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
