"""Check that a custom method can be resumed, repeated, chunked and loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser
from nearfar.core import NearfarError

GROUP = "Methods"


def run(argv: Sequence[str]) -> None:
    about = "Whether a method of your own keeps what every method promises: on a few small runs, with what is wrong and what mends it."
    parser = FlagParser("nearfar check", "RECIPE [--data DATA] [--json]", about)
    parser.add_argument("recipe", metavar="RECIPE", help="a Python file of your own, or a name that `nearfar list` shows")
    parser.add_argument("--data", metavar="DATA", help="what `nearfar fit --data` takes. Default: that of the recipe's `tiny` settings.")
    parser.add_argument("--encoder", metavar="NAME", help="as in `nearfar fit`")
    parser.add_argument("--json", action="store_true", help="the promises as JSON")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    if not {"-v", "--verbose"} & set(argv):
        terminal.log_to_console(verbose=False, quiet=True)  # of a dozen small runs nobody wants to read
    from nearfar.api.check import check as ask

    show = terminal.show_progress("checking", given["quiet"])
    chosen = {"encoder": given["encoder"]} if "encoder" in given else {}
    found = ask(given["recipe"], given.get("data"), progress=show, **chosen)
    if given.get("json"):
        print(found.to_json())
    else:
        terminal.print_table(["", "promise", "found"], found.rows())
    if found.broken:
        sys.stdout.flush()
        raise NearfarError(f"{found.method} breaks {len(found.broken)} of {len(found.promises)} promises")
