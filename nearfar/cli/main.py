"""`nearfar COMMAND …`: finds the command, and turns every way it can end into an exit code and at most one line.

Nothing heavy is imported before a command is known: `nearfar --help` does not wait for torch.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence

from nearfar import __version__

COMMANDS = {
    "list": ("list_methods", "all methods, by kind of data, year, paper and loss"),
    "card": ("card", "what one method claims, its equation, hyperparameters and published numbers"),
    "fit": ("fit", "train a method on your data; go on with a run that was stopped"),
    "eval": ("evaluate", "measure a run against its untrained encoder and simple baselines"),
    "embed": ("embed", "write a vector for every sample"),
    "export": ("export", "hand the encoder over to onnx, torch, transformers or sentence-transformers"),
    "index": ("indexing.index", "encode data and build an index of them; add to it, delete from it"),
    "search": ("indexing.search", "the nearest items of an index: to a text, an image, a sound, a row, vectors"),
    "record": ("record.record", "play a game at random and keep its frames, sound and memory in a file to learn from"),
    "mine": ("mine.mine", "hard negatives for dpr: passages that BM25 finds for a question and that do not answer it"),
    "ask": ("ask.ask", "passages of an index that answer a question; with a reader, the answer marked in them"),
    "report": ("report", "write a page about a run that a browser opens offline"),
    "compare": ("judging.compare", "several runs in one table and one figure, with their spread over seeds"),
    "diagnose": ("judging.diagnose", "what is wrong with a run, measured, and what to try"),
    "check": ("judging.check", "whether a method of your own can be resumed, repeated, chunked and loaded like any other"),
    "choose": ("judging.choose", "try several methods on your data and rank them without labels"),
    "serve": ("serve.serve", "embed and search over HTTP; explore the embedding in a browser"),
    "demo": ("demo", "all of it once, on data that ship with a dependency"),
}
"""Each command's function in `nearfar.cli.commands` (or in the module named), and its purpose."""

EXAMPLES = """examples:
  nearfar demo                                                 from nothing to a measured run, in about a minute
  nearfar fit simclr --data photos/ --out run --epochs 100     train SimCLR on a folder of images
  nearfar embed run --data photos/ --out vectors.npy           a vector for every image, from the trained encoder"""


def help_text() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items())
    return f"""usage: nearfar COMMAND [flags]

Contrastive representation learning: pull the alike near, push the rest far.

commands:
{commands}

{EXAMPLES}

`nearfar COMMAND --help` explains a command; `nearfar --version` names the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is shown escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as e:
        return int(e.code or 0)
    except BrokenPipeError:  # the reader of a pipe has seen enough; Python must not complain of it when it exits, either
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
        print(help_text())
    elif argv[0] in ("-V", "--version"):
        print(f"nearfar {__version__}")
    else:
        _command(argv[0])(argv[1:])
    return 0


def _command(name: str):
    if name not in COMMANDS:
        from nearfar.core.errors import UsageError, did_you_mean

        kind = "flag" if name.startswith("-") else "command"
        raise UsageError(
            f"unknown {kind} {name!r}.{did_you_mean(name, [*COMMANDS, '--help', '--version'])} `nearfar --help` shows all commands"
        )
    from importlib import import_module

    if name != "fit" and _one_of_several():
        from nearfar.core.errors import UsageError

        raise UsageError(f"`nearfar {name}` runs in one process: start it without torchrun")
    module, _, function = COMMANDS[name][0].rpartition(".")
    return getattr(import_module(f"nearfar.cli.{module or 'commands'}"), function)


def _one_of_several() -> bool:
    """Whether torchrun started this process as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def _speaks() -> bool:
    """Of several ranks one says how the run ended."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return True
    from nearfar.train.launch import speaks

    return speaks()


def _is_a_users_mistake(e: Exception) -> bool:
    from nearfar.core.errors import NearfarError

    return isinstance(e, NearfarError)


def _say(line: str) -> None:
    print(f"nearfar: {line}", file=sys.stderr)


def _explain(e: Exception) -> tuple[str, int]:
    """One line about what went wrong, and the exit code."""
    from nearfar.core.errors import NearfarError

    if isinstance(e, NearfarError):
        return str(e), e.exit_code
    if _out_of_memory(e):
        return (
            "out of memory. --chunk 64 embeds fewer rows at a time; a smaller --batch or --image-size helps too",
            1,
        )
    if isinstance(e, (OSError, SyntaxError)):  # they name their file themselves
        return str(e), 1
    where = traceback.extract_tb(e.__traceback__)[-1]
    first = str(e).strip().split("\n")[0]
    return f"{type(e).__name__}: {first} ({where.filename}, line {where.lineno}); -v shows the traceback", 1


def _out_of_memory(e: Exception) -> bool:
    """Python's, CUDA's, and the bare RuntimeError of torch's allocator on a CPU."""
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(e)
