"""Methods of the user's own: which file belongs to which run, classes without a file, what a run remembers of its code."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from test_cli_main import OWN, _logger, run  # noqa: F401
from test_compare_runs import images

import nearfar
from nearfar import recipes
from nearfar.api.evaluate import measure_model
from nearfar.cli.main import main
from nearfar.core import UsageError
from nearfar.evaluate.stored_results import store_results
from nearfar.train.run_folder import RunFolder

SMALL = {"data": "digits", "steps": 2, "batch_size": 16}
QUICK = {"draws": 2, "per_class": 2}
MIRRORED = OWN.replace(
    "return Net(encoder=encoder)",
    "return Net(encoder=encoder)\n\n    def encode(self, net, x, tower='encoder'):\n        return -1 - net.encoder(x.float() / 255).abs()",
)


def own_file(path: Path, text: str = OWN) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def trained_with(file: Path, out: Path, **settings) -> Path:
    nearfar.fit(str(file), out=out, **SMALL | settings)
    return out


def measured(path: Path, recipe) -> Path:
    """The run, with results in its folder."""
    trained = nearfar.load(path, recipe=recipe)
    store_results(trained, measure_model(trained, **QUICK).table)
    return path


def encoded(path: Path, recipe=None) -> torch.Tensor:
    return nearfar.load(path, recipe=recipe).encode("digits")[:50]


@pytest.fixture
def notebook(monkeypatch) -> types.ModuleType:
    """A module without a file, as a notebook's cells are."""
    module = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)
    exec(OWN, vars(module))
    return module


@pytest.fixture
def said(caplog, monkeypatch):
    """What was logged, also after the command line has taken the logger over."""
    monkeypatch.setattr(logging.getLogger("nearfar"), "propagate", True)
    return caplog


@pytest.mark.slow
def test_each_run_is_measured_with_its_own_file(tmp_path, capsys):
    one, two = own_file(tmp_path / "one.py"), own_file(tmp_path / "two.py", MIRRORED)
    data = images(tmp_path / "data.npz", 150)
    a, b = trained_with(one, tmp_path / "a", data=data), trained_with(two, tmp_path / "b", data=data)
    assert encoded(a, one).max() > -1
    assert encoded(b, two).max() <= -1
    code, _, err = run(["compare", str(a), str(b), "--recipe", str(one)], capsys)
    assert code == 2
    assert f"{b} was trained with a custom recipe, {two}, which {one} is not" in err
    assert err.count("\n") == 1
    with pytest.raises(UsageError, match=r"two\.py"):
        nearfar.load(b, recipe=one)
    code, out, err = run(["compare", str(a), str(b), "--recipe", str(one), "--recipe", str(two), "--json"], capsys)
    assert code == 0, err
    found = {Path(row["runs"][0]).name: row for row in json.loads(out)["rows"] if row["runs"]}
    for path, file in ((a, one), (b, two)):
        alone = measure_model(nearfar.load(path, recipe=file), **QUICK).table.results[-1]
        assert alone["representation"] == "trained encoder"
        assert found[path.name]["knn"]["mean"] == alone["knn"]
        assert found[path.name]["alignment"]["mean"] == alone["alignment"]
    assert run(["compare", str(a), str(b)], capsys)[0] == 0, "what was measured needs no code"


def test_a_file_that_was_moved_is_known_by_its_name_or_by_its_content(tmp_path):
    file = own_file(tmp_path / "here" / "mine.py")
    path = trained_with(file, tmp_path / "run")
    vectors = encoded(path, file)
    assert torch.equal(encoded(path, own_file(tmp_path / "renamed.py")), vectors)
    other = own_file(tmp_path / "there" / "mine.py", MIRRORED)
    with pytest.raises(UsageError, match=r"here/mine\.py, which .*there/mine\.py is not"):
        nearfar.load(path, recipe=other)
    assert torch.equal(encoded(path, [other, file]), vectors)
    file.unlink()
    assert not torch.equal(encoded(path, other), vectors), "the one of that name, now that the other is gone"
    with pytest.raises(UsageError, match=r"which may be .*there/mine\.py and .*elsewhere/mine\.py: name only one"):
        nearfar.load(path, recipe=[other, own_file(tmp_path / "elsewhere" / "mine.py", OWN + "# another\n")])
    with pytest.raises(UsageError, match=r"no such recipe file: .*here/mine\.py"):
        nearfar.load(path, recipe=file)


def test_files_of_one_name_do_not_meet(tmp_path):
    one, two = own_file(tmp_path / "a" / "mine.py"), own_file(tmp_path / "b" / "mine.py", MIRRORED)
    first, second = recipes.load_method(str(one)), recipes.load_method(str(two))
    for method, file in ((first, one), (second, two)):
        found = recipes.find_method(method.recipe_class)
        assert (found.name, found.source_bytes, found.source_path) == (str(file), file.read_bytes(), file)


def test_a_class_from_a_notebook_trains_resumes_loads_and_compares(tmp_path, notebook):
    class Stop(nearfar.Hook):
        def step(self, session, values, z):
            session.interrupted = True

    kind = notebook.Own
    assert nearfar.fit(kind(), **SMALL).step == 2
    path, small = tmp_path / "run", SMALL | {"data": images(tmp_path / "data.npz", 150)}
    with pytest.raises(KeyboardInterrupt):
        nearfar.fit(kind(weight=2.0), out=path, hooks=[Stop()], **small)
    config = RunFolder(path).read_config()
    assert (config["recipe"], config["source"]) == ("Own (no file)", {"class": "Own", "sha256": None})
    assert not (path / "recipe.py").exists()
    assert nearfar.resume(path, recipe=kind).step == 2
    for again in (kind, kind(), [kind]):
        assert nearfar.load(path, recipe=again).recipe == kind(weight=2.0)
    assert nearfar.fit(kind, config_file=path / "config.json").recipe == kind(weight=2.0)
    for use in (nearfar.load, nearfar.resume):
        with pytest.raises(UsageError, match=r"Own, a class with unknown source: pass it again \(nearfar\.load\(RUN, recipe=Own\)"):
            use(path)
    nearfar.fit(kind, out=tmp_path / "other", seed=1, **small)
    found = nearfar.compare_runs([path, measured(tmp_path / "other", kind)], recipe=kind)
    assert [row.name for row in found.rows] == ["Own (no file) weight=2", "Own (no file) weight=1"]
    text = (path / "README.md").read_text()
    assert 'nearfar.load("RUN", recipe=Own)' in text
    assert "its source is not known" in text


def test_a_class_of_another_name_is_refused(tmp_path, notebook):
    exec(OWN.replace("Own", "Other"), vars(notebook))
    nearfar.fit(notebook.Own, out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match="Own, a class with unknown source, which Other is not"):
        nearfar.load(tmp_path / "run", recipe=notebook.Other)
    assert type(nearfar.load(tmp_path / "run", recipe=[notebook.Other, notebook.Own]).recipe) is notebook.Own


def test_a_class_that_was_written_into_a_file_later_is_taken_from_there(tmp_path, notebook, capsys):
    nearfar.fit(notebook.Own, out=tmp_path / "run", **SMALL)
    file = own_file(tmp_path / "own.py")
    assert torch.equal(encoded(tmp_path / "run", file), encoded(tmp_path / "run", notebook.Own))
    code, _, err = run(["fit", "--config", str(tmp_path / "run/config.json"), "--out", str(tmp_path / "new")], capsys)
    assert code == 2
    assert "`nearfar fit FILE --config …`" in err
    code, _, err = run(["fit", str(file), "--config", str(tmp_path / "run/config.json"), "--out", str(tmp_path / "new"), "-q"], capsys)
    assert (code, err) == (0, "")
    assert RunFolder(tmp_path / "new").read_config()["recipe"] == str(file)


@pytest.mark.slow
def test_a_class_typed_into_a_shell_trains(tmp_path, notebook):
    code = (
        OWN
        + '\nimport nearfar\nnearfar.fit(Own(), data="digits", steps=2, batch_size=16, out="run")\n'
        + 'print(nearfar.load("run", recipe=Own).step)\n'
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"
    assert json.loads((tmp_path / "run/config.json").read_text())["recipe"] == "Own (no file)"
    notebook.__file__ = "<stdin>"
    assert recipes.find_method(notebook.Own).name == "Own (no file)"


def test_pretraining_with_a_method_of_ones_own_is_gone_on_with(tmp_path, capsys):
    """Only weights are taken, so that no code of the donor's is needed."""
    file = own_file(tmp_path / "own.py")
    donor, after = trained_with(file, tmp_path / "donor"), own_file(tmp_path / "after.py", MIRRORED)
    file.unlink()
    flags = ["--data", "digits", "--steps", "1", "--batch-size", "16", "--lr", "1e-12", "--init-from", str(donor)]
    for recipe in ("simclr", str(after)):
        out = tmp_path / Path(recipe).stem
        code, _, err = run(["fit", recipe, *flags, "--out", str(out), "-q"], capsys)
        assert (code, err) == (0, "")
        trained = nearfar.load(out, recipe=after)
        theirs = nearfar.load(donor, recipe=own_file(tmp_path / "again" / "own.py")).net.encoder.state_dict()
        mine, began = trained.net.encoder.state_dict(), trained.build_from_init()
        assert began is not None
        for name, weights in theirs.items():
            assert torch.equal(began.net.encoder.state_dict()[name], weights), name
            if "running" not in name and "num_batches" not in name:
                assert torch.allclose(mine[name], weights, atol=1e-6), name


def test_finetuning_takes_more_than_the_encoder_from_a_method_of_ones_own(tmp_path):
    layered = OWN.replace(
        "return Net(encoder=encoder)",
        "return Net(encoder=encoder, middle=torch.nn.Sequential(encoder, build_first_layer(encoder.dim, 'batch')))",
    ).replace("import torch\n", "import torch\nfrom nearfar.recipes.vision.simclr_v2_finetune import build_first_layer\n")
    donor = trained_with(own_file(tmp_path / "layered.py", layered), tmp_path / "donor")
    settings = {"data": "digits", "steps": 1, "batch_size": 16, "lr": 1e-12, "init_from": str(donor)}
    began = nearfar.fit("simclr-v2-finetune", out=tmp_path / "run", **settings).build_from_init()
    assert began is not None
    theirs = nearfar.load(donor, recipe=tmp_path / "layered.py").net.middle.state_dict()
    assert all(torch.equal(began.net.middle.state_dict()[name], weights) for name, weights in theirs.items())
    plain = trained_with(own_file(tmp_path / "own.py"), tmp_path / "plain")
    with pytest.raises(UsageError, match="plain: its model has no middle to start from, it has encoder"):
        nearfar.fit("simclr-v2-finetune", **settings | {"init_from": str(plain)})


def test_a_run_keeps_a_copy_of_its_recipe_and_says_when_the_file_has_changed(tmp_path, said):
    file, data = own_file(tmp_path / "own.py"), images(tmp_path / "data.npz", 150)
    path, other = (measured(trained_with(file, tmp_path / name, data=data, seed=i), file) for i, name in enumerate(("run", "other")))
    assert (path / "recipe.py").read_bytes() == file.read_bytes()
    assert RunFolder(path).read_config()["source"] == {"class": "Own", "sha256": hashlib.sha256(OWN.encode()).hexdigest()}
    nearfar.compare_runs([path, other])
    assert "changed" not in said.text
    file.write_text(OWN + "# a line more\n")
    warning = f"{file} has changed since {path} was trained; the copy is {path / 'recipe.py'}"
    for use in (nearfar.load, nearfar.resume):
        said.clear()
        use(path, recipe=file)
        assert said.messages.count(warning) == 1
    said.clear()
    nearfar.compare_runs([path, other])
    assert said.messages.count(warning) == 1
    third = measured(trained_with(file, tmp_path / "third", data=data, seed=2), file)
    found = nearfar.compare_runs([path, other, third])
    assert [len(row.runs) for row in found.rows] == [2, 1], "runs of another content are no seeds of the same method"
    nearfar.fit("simclr", out=third, overwrite=True, **SMALL)
    assert not (third / "recipe.py").exists()


def test_what_is_recorded_is_what_was_run(tmp_path):
    """A file may be edited while a training with it begins."""
    file = own_file(tmp_path / "own.py")
    kind = recipes.load_method(str(file)).recipe_class
    file.write_text(MIRRORED)
    assert recipes.find_method(kind).source_bytes == OWN.encode()
    file.unlink()
    nearfar.fit(kind, out=tmp_path / "run", **SMALL)
    assert RunFolder(tmp_path / "run").read_config()["recipe"] == str(file)
    assert (tmp_path / "run/recipe.py").read_text() == OWN


def test_a_recipe_file_imports_what_lies_beside_it(tmp_path, capsys):
    """Two folders may call different modules the same."""
    text = OWN.replace("import torch\n", "import torch\nfrom beside_it import NUMBER\n").replace(
        "weight: float = 1.0", "weight: float = NUMBER"
    )
    for folder, number in (("a", 3.0), ("b", 4.0)):
        file = own_file(tmp_path / folder / "own.py", text)
        (tmp_path / folder / "beside_it.py").write_text(f"NUMBER = {number}\n")
        assert recipes.load_method(str(file)).recipe_class().weight == number
        assert main(["fit", str(file), "--tiny", "--out", str(tmp_path / folder / "run"), "-q"]) == 0, capsys.readouterr().err
        assert RunFolder(tmp_path / folder / "run").read_config()["hyperparameters"]["weight"] == number
    assert str(tmp_path / "a") not in sys.path
    sys.modules.pop("beside_it")


def test_card_and_report_print_a_command_that_repeats_the_run(tmp_path, capsys, monkeypatch):
    file = own_file(tmp_path / "own.py")
    path = trained_with(file, tmp_path / "run", data=images(tmp_path / "data.npz", 150))
    command = f"nearfar fit {file} --config {path}/config.json --out NEW"
    assert run(["report", str(path), "--recipe", str(file)], capsys)[0] == 0
    assert command in (path / "report.html").read_text()
    card = (path / "README.md").read_text()
    assert "`nearfar fit own.py --config config.json --out NEW`" in card
    assert 'nearfar.load("RUN", recipe="own.py")' in card
    assert str(tmp_path) not in card
    monkeypatch.chdir(tmp_path)
    assert run([*command.split()[1:], "-q"], capsys) == (0, "", "")
    assert RunFolder(tmp_path / "NEW").read_config()["train_config"] == RunFolder(path).read_config()["train_config"]
