"""docs/own.md, from its first block to its last: files are written, commands given, assertions hold."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest
import torch

import nearfar
from nearfar.cli.main import main
from nearfar.core import RandomKey, Recipe, Rows
from nearfar.data import load_images
from nearfar.scores import Scores, Statistic
from nearfar.train.session import TrainingSession

GUIDE = Path(__file__).parent.parent / "docs" / "own.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
FILES = {text.split("\n", 1)[0].removeprefix("# "): text for kind, text in BLOCKS if kind == "python" and re.match(r"# \w+\.py\n", text)}
SMALL = {"steps": 4, "batch_size": 32, "device": "cpu"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The guide's files, where its commands look for them."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_guide_has_the_files_it_speaks_of():
    assert list(FILES) == ["simsiam.py", "salted.py", "nnclr.py", "flat.py"]
    assert {kind for kind, _ in BLOCKS} == {"python", "sh"}


def test_the_guide_leaves_out_nothing_that_a_recipe_may_say():
    text = GUIDE.read_text(encoding="utf-8")
    members = [name for name in {**vars(Recipe), **Recipe.__annotations__} if not name.startswith("_")]
    assert {"card", "limits", "embed", "refresh", "towers"} <= set(members)
    assert [name for name in members if not re.search(rf"^\| `{name}\b", text, re.MULTILINE)] == []
    statistics = [name for name, value in vars(Scores).items() if isinstance(value, Statistic)]
    assert len(statistics) == 10
    assert all(name.split("_")[1] in text for name in statistics)


def test_what_is_no_file_runs_in_order(folder):
    known: dict = {}
    snippets = [text for kind, text in BLOCKS if kind == "python" and text not in FILES.values()]
    assert sum(text.count("assert ") for text in snippets) >= 5
    for number, text in enumerate(snippets):
        exec(compile(text, f"{GUIDE.name}, snippet {number}", "exec"), known)
    blended, data = known["Blended"](0.4), load_images("digits").train
    ids = RandomKey(0).permutation(len(data))[:20]
    rows, rng_key = Rows(ids, ids + 1000, ids), RandomKey(3)
    whole, part = (blended.view(blended.read(data, r, rng_key), r, rng_key) for r in (rows, rows[5:9]))
    assert torch.equal(whole["v1"][5:9], part["v1"])
    assert not torch.equal(whole["v0"], whole["v1"])
    assert 0 <= float(whole["v0"].min()) <= float(whole["v0"].max()) <= 1


@pytest.mark.slow
def test_its_commands_do_what_they_say(folder, capsys):
    commands = [text.splitlines() for kind, text in BLOCKS if kind == "sh"]
    assert [len(block) > 1 for block in commands] == [True, False]
    for line in itertools.chain(*commands):
        words = shlex.split(line)
        short = ["--steps", "4", "--batch-size", "32"] if words[1] == "fit" and "--resume" not in words else []
        assert main([*words[1:], *short]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "SimSiam" in shown
    assert "trained encoder" in shown
    assert "hidden" in shown, "the setting that differs between the two runs"
    assert "chunks are the whole batch" in shown


@pytest.mark.parametrize("name", FILES)
def test_each_of_its_methods_keeps_its_promises(name, folder):
    found = nearfar.check(name)
    assert [p for p in found.promises if p.kept is False] == []
    asked = {p.name for p in found.promises if p.kept}
    assert len(asked) >= 5
    assert nearfar.fit(name, preset="tiny", **SMALL).encode(load_images("digits").test).isfinite().all()


def test_the_neighbours_are_of_earlier_steps(folder):
    """As the guide says of NNCLR: what is read in a step was pushed before it."""
    from nearfar import recipes
    from nearfar.core import RuntimeConfig, TrainConfig
    from nearfar.train.training_loop import Hook, train

    kind = recipes.load_method("nnclr.py").recipe_class
    recipe = kind(support=64)  # type: ignore[call-arg]
    session = TrainingSession(
        recipe, TrainConfig(steps=3, batch_size=32), RuntimeConfig(), load_images("digits").train.drop_labels(), torch.device("cpu")
    )
    pushed = []

    class Watch(Hook):
        def step(self, session, values, z):
            pushed.append(z["z0"].clone())

    train(session, [Watch()])
    assert torch.equal(session.net.queue.rows, torch.cat([pushed[2], pushed[1]])), "a ring: the third batch where the first was"


@pytest.mark.parametrize(
    ("right", "wrong", "broken"),
    [
        ("z0, z1 = (net.head(", "z0, z1 = (_centred(net.head)(", "chunks are the whole batch"),
        ("Net(encoder=encoder,", "Net(encoder=encoder, spare=mlp(2, 2),", "gradients reach every parameter"),
        ("return (byol(", "return _growing() * (byol(", "resuming is exact"),
    ],
)
def test_mistakes_in_it_are_found(right, wrong, broken, folder):
    """Rows that know of each other, a parameter nobody uses, state outside the net."""
    helpers = "def _centred(f): return lambda x: f(x) - f(x).mean(0)\nSEEN = []\ndef _growing(): SEEN.append(1); return len(SEEN)\n"
    simsiam = FILES["simsiam.py"]
    assert simsiam.count(right) == 1
    (folder / "simsiam.py").write_text(helpers + simsiam.replace(right, wrong))
    assert broken in [p.name for p in nearfar.check("simsiam.py").broken]
