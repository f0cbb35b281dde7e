"""The command line as its users start it: in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from nearfar.cli.main import list_commands

NEARFAR = [sys.executable, "-m", "nearfar"]


def run(*argv: str, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NEARFAR, *argv], capture_output=True, text=True, timeout=120, **how)


def test_help_and_version_are_quick_and_do_not_import_torch():
    seconds = []
    for flag in ("--help", "--help", "--version"):
        start = time.perf_counter()
        answer = run(flag)
        seconds.append(time.perf_counter() - start)
        assert (answer.returncode, answer.stderr) == (0, "")
    assert min(seconds) < 0.5
    probe = "import sys; from nearfar.cli.main import main; main(['--help']); sys.exit(len({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", probe], stdout=subprocess.DEVNULL).returncode == 0


def test_a_reader_who_leaves_early_is_no_error():
    with subprocess.Popen([*NEARFAR, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_without_rich_and_other_extras_everything_still_answers():
    block = "import sys; sys.modules.update(dict.fromkeys(['rich', 'tyro', 'faiss', 'plotly'])); from nearfar.cli.main import main; "
    calls = "print([main(['list', '--json']), main(['card', 'simclr']), main(['fit', 'simclr', '--help'])])"
    answer = subprocess.run([sys.executable, "-c", block + calls], capture_output=True, text=True)
    assert answer.stdout.endswith("[0, 0, 0]\n"), answer.stderr


HEAVY = ("torch", "numpy", "scipy", "sklearn", "transformers", "pyarrow", "rich", "PIL")
MEASURE = """
import json, resource, sys
from nearfar.cli.main import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([code, used.ru_utime + used.ru_stime, sorted(set(sys.modules) & set(%r))]), file=sys.stderr)
"""
QUICK = ["--help", "list", "list --json", "card simclr", "card word2vec-cbow --json", "fit simclr --help", "fit clip --help-all"]


@pytest.mark.parametrize("command", [*QUICK, *(f"{name} --help" for name in list_commands())])
def test_lists_cards_and_help_texts_answer_without_torch(command):
    seconds = []
    while len(seconds) < 3 and (not seconds or min(seconds) > 0.35):  # the best of three, on a busy machine
        answer = subprocess.run([sys.executable, "-c", MEASURE % (HEAVY,), *command.split()], capture_output=True, text=True, timeout=60)
        code, used, imported = json.loads(answer.stderr)
        assert (code, imported) == (0, [])
        seconds.append(used)
    assert min(seconds) <= 0.35
