"""`python -m nearfar`."""

from __future__ import annotations

import sys

from nearfar.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
