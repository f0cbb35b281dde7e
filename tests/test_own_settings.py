"""The settings of a method of the user's own: what its fields may be called, which values they take, which presets there are."""

from __future__ import annotations

import pytest
import torch

import nearfar
from nearfar import recipes
from nearfar.cli.main import main
from nearfar.core import Net, RandomKey, UsageError
from nearfar.recipes.vision.barlow_twins import BarlowTwins

OWN = '''"""A weight of a researcher's own."""

from dataclasses import dataclass

from nearfar.core import TrainConfig
from nearfar.recipes.vision.{module} import {base}


@dataclass(frozen=True)
class Weighted({base}):
    """{base} with one more number."""

    {limits}
    {field}


{preset}
'''
TINY = "tiny = Weighted(), TrainConfig(data='digits', steps=2, batch_size=16)"


@pytest.fixture
def own(tmp_path):
    def write(field: str = "nu: float = 1.0", base: str = "BYOL", module: str = "byol", limits: str = "", preset: str = TINY) -> str:
        file = tmp_path / "weighted.py"
        file.write_text(OWN.format(field=field, base=base, module=module, limits=limits, preset=preset))
        return str(file)

    return write


def said(capsys, *argv: str) -> tuple[int, str]:
    code = main(list(argv))
    return code, capsys.readouterr().err


def test_a_weight_of_zero_is_refused_with_the_line_that_allows_it(own, tmp_path, capsys):
    out = str(tmp_path / "run")
    code, err = said(capsys, "fit", own(), "--tiny", "--nu", "0", "--out", out)
    assert code == 2
    assert err.count("\n") == 1
    assert "--nu must be greater than 0, got 0.0" in err
    line = 'limits = {**BYOL.limits, "nu": (0.0, float("inf"))}'
    assert f"write {line} in the class Weighted" in err
    assert said(capsys, "fit", own(limits=line), "--tiny", "--nu", "0", "--ema-momentum", "1", "--out", out)[0] == 0
    code, err = said(capsys, "fit", own(limits=line), "--tiny", "--dim", "-3", "--out", out)
    assert '--dim must be greater than 0, got -3. To allow this value, add "dim": (-float("inf"), float("inf")) to the limits' in err
    _, err = said(capsys, "fit", own(limits=line), "--tiny", "--nu", "-1", "--out", out)
    assert err.strip().endswith("--nu must be at least 0, got -1.0"), "limits that the author has set are left alone"


def test_a_recipe_without_limits_is_told_the_whole_line(own):
    kind = recipes.load_method(own(base="InvariantSpreading", module="invariant_spreading")).recipe_class
    with pytest.raises(UsageError, match=r'write limits = \{"nu": \(0\.0, float\("inf"\)\)\} in the class Weighted'):
        kind(nu=0.0)  # type: ignore[call-arg]


def test_shipped_recipes_only_name_the_limit(capsys, tmp_path):
    _, err = said(capsys, "fit", "simclr", "--tiny", "--temperature", "0", "--out", str(tmp_path / "run"))
    assert err.strip().endswith("--temperature must be greater than 0, got 0.0")


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("barlow-twins", {"redundancy_weight": 0.0}),
        ("mochi", {"mixed_negatives": 0, "mixing_start_ratio": 0.0}),
        ("mochi", {"mixed_negatives": 0, "query_mixed_negatives": 0, "mixing_start_ratio": 0.0}),
        ("pcl", {"concentration_smoothing": 0.0, "cluster_from_epoch": 0}),
        ("sentence-bert", {"loss_type": "triplet", "margin": 0.0, "data": "docstring-triples"}),
        ("transe", {"margin": 0.0}),
    ],
)
def test_weights_and_margins_of_zero_train(name, zero):
    trained = nearfar.fit(name, preset="tiny", steps=3, batch_size=64, log_every=1, **zero)
    losses = [m["loss"] for m in trained.metrics if "loss" in m]
    assert len(losses) == 3
    assert torch.tensor(losses).isfinite().all()


def test_barlow_twins_without_its_weight_is_its_diagonal():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(50, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    found = BarlowTwins(redundancy_weight=0.0).objective(Net(), {"a": a, "b": b}, RandomKey(0))
    c = torch.stack([torch.corrcoef(torch.stack([a[:, i], b[:, i]]))[0, 1] for i in range(6)])
    assert torch.allclose(found, (1 - c).square().sum())


@pytest.mark.parametrize(
    ("name", "owner"), [("lr", "a setting of TrainConfig"), ("chunk_size", "a setting of RuntimeConfig"), ("out", "an option of")]
)
def test_a_hyperparameter_that_is_called_like_another_setting_is_refused(own, name, owner, tmp_path, capsys):
    file = own(field=f"{name}: int = 1")
    wanted = f"Weighted has a hyperparameter '{name}', and --{name.replace('_', '-')} is {owner}"
    code, err = said(capsys, "fit", file, "--tiny", "--out", str(tmp_path / "run"))
    assert code == 2
    assert err.count("\n") == 1
    assert wanted in err
    assert "give it another name" in err
    with pytest.raises(UsageError, match=wanted):
        nearfar.fit(file, preset="tiny")


@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_a_preset_that_the_file_does_not_have(own, preset, tmp_path, capsys):
    file = own(preset="")
    code, err = said(capsys, "fit", file, f"--{preset}", "--data", "digits", "--out", str(tmp_path / "run"))
    assert code == 2
    assert f"{file} has no {preset} = …" in err
    assert f"{preset} = Weighted(…), TrainConfig(data=…)" in err
    with pytest.raises(UsageError, match=f"no {preset} = …"):
        nearfar.fit(recipes.load_method(file).recipe_class, "digits", preset=preset)
    assert not (tmp_path / "run").exists()
