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
    """Run `nearfar check`."""
    about = "Check on a few small runs that a custom method keeps what every method promises. Say what is wrong and how to fix it."
    parser = FlagParser("nearfar check", "RECIPE [--data DATA] [--json]", about)
    parser.add_argument("recipe", metavar="RECIPE", help="Python file with a custom recipe, or a name from `nearfar list`")
    parser.add_argument(
        "--data", metavar="DATA", help="data, as in `nearfar fit --data`. Default: the data of the recipe's quick-start preset."
    )
    parser.add_argument("--encoder", metavar="NAME", help="encoder, as in `nearfar fit`")
    parser.add_argument("--json", action="store_true", help="print the promises as JSON")
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    if not {"-v", "--verbose"} & set(argv):
        terminal.log_to_console(verbose=False, quiet=True)  # hide the log of a dozen small runs
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
