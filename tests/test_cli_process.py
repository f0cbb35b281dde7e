"""The command line as its users start it: in processes of its own."""

from __future__ import annotations

import subprocess
import sys
import time

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
