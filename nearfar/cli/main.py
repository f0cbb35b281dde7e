"""Entry point of the command line: finds the command and sets the exit code.

Every error ends with an exit code and at most one line on stderr. No heavy module is imported before the
command is known, so `nearfar --help` does not wait for torch.
"""

from __future__ import annotations

import ast
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearfar.version import __version__

COMMANDS_FOLDER = Path(__file__).parent / "commands"
GROUPS = ("Methods", "Training", "Results", "Vectors and search", "Data")
"""Groups of `nearfar --help` in order. A command names its group in its file; other groups come last."""

EXAMPLES = """examples:
  nearfar demo                                                 from nothing to a measured run, in about a minute
  nearfar fit simclr --data photos/ --out run --epochs 100     train SimCLR on a folder of images
  nearfar embed run --data photos/ --out vectors.npy           a vector for every image, from the trained encoder"""


@dataclass(frozen=True)
class Command:
    """One command as `nearfar --help` shows it.

    It is read from its file without an import.
    """

    name: str
    group: str
    purpose: str


def list_commands() -> dict[str, Command]:
    """Return all commands by name: one for each file in the folder `commands`."""
    files = [path for path in sorted(COMMANDS_FOLDER.glob("*.py")) if path.stem != "__init__"]
    return {path.stem: _read_command(path) for path in files}


def _read_command(path: Path) -> Command:
    """Read a command's purpose (the first line of its docstring) and its group."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    purpose = (ast.get_docstring(tree) or "").split("\n")[0]
    groups = [
        ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUP"
    ]
    return Command(path.stem, groups[0] if groups else "Other", purpose)


def build_help_text() -> str:
    """Return the text of `nearfar --help`."""
    commands = list_commands()
    width = max(map(len, commands))
    groups = dict.fromkeys([*GROUPS, *(command.group for command in commands.values())])
    lines = []
    for group in groups:
        lines.append(f"\n{group}:")
        lines += [f"  {command.name:{width}}  {command.purpose}" for command in commands.values() if command.group == group]
    listing = "\n".join(lines)
    return f"""usage: nearfar COMMAND [flags]

Contrastive representation learning: pull the alike near, push the rest far.
{listing}

{EXAMPLES}

`nearfar COMMAND --help` explains a command; `nearfar --version` shows the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):  # escape characters that the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as e:
        return int(e.code or 0)
    except BrokenPipeError:  # the reader closed the pipe; avoid Python's own error message at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as e:
        if _speaks():
            _say(f"interrupted{': ' if e.args else ''}{e}")
        return 130
    except Exception as e:
        message, code = _explain(e)
        if _speaks():
            if {"-v", "--verbose"} & set(argv) and not _is_a_users_mistake(e):
                traceback.print_exc()
            _say(f"error: {message}")
        return code


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(build_help_text())
    elif argv[0] in ("-V", "--version"):
        print(f"nearfar {__version__}")
    else:
        _command(argv[0])(argv[1:])
    return 0


def _command(name: str):
    commands = list_commands()
    if name not in commands:
        from nearfar.core.errors import UsageError, suggest_similar_names

        kind = "flag" if name.startswith("-") else "command"
        raise UsageError(
            f"unknown {kind} {name!r}.{suggest_similar_names(name, [*commands, '--help', '--version'])} `nearfar --help` shows all commands"
        )
    from importlib import import_module

    if name != "fit" and _one_of_several():
        from nearfar.core.errors import UsageError

        raise UsageError(f"`nearfar {name}` runs in one process: start it without torchrun")
    return import_module(f"nearfar.cli.commands.{name}").run


def _one_of_several() -> bool:
    """Return True if torchrun started this process as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def _speaks() -> bool:
    """Return True if this process prints how the run ended.

    Only one of several ranks does.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return True
    from nearfar.train.process_group import is_reporting_rank

    return is_reporting_rank()


def _is_a_users_mistake(e: Exception) -> bool:
    from nearfar.core.errors import NearfarError

    return isinstance(e, NearfarError)


def _say(line: str) -> None:
    print(f"nearfar: {line}", file=sys.stderr)


def _explain(e: Exception) -> tuple[str, int]:
    """Return a one-line error message and the exit code."""
    from nearfar.core.errors import NearfarError

    if isinstance(e, NearfarError):
        return str(e), e.exit_code
    if _out_of_memory(e):
        return (
            "out of memory. --chunk-size 64 embeds fewer rows at a time; a smaller --batch-size or --image-size helps too",
            1,
        )
    if isinstance(e, (OSError, SyntaxError)):  # the message already names the file
        return str(e), 1
    where = traceback.extract_tb(e.__traceback__)[-1]
    first = str(e).strip().split("\n")[0]
    return f"{type(e).__name__}: {first} ({where.filename}, line {where.lineno}); -v shows the traceback", 1


def _out_of_memory(e: Exception) -> bool:
    """Return True for out-of-memory errors of Python, CUDA and torch's CPU allocator.

    The CPU allocator raises a plain RuntimeError.
    """
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(e)
