"""The help of `nearfar fit`: short, of one modality, and complete with --help-all."""

from __future__ import annotations

import dataclasses
import re

import pytest

from nearfar.cli.fit_flags import COMMAND_FLAGS, EVERYDAY
from nearfar.cli.main import main
from nearfar.cli.modality_help import list_modality_settings, read_modality_help
from nearfar.core import RuntimeConfig, TrainConfig
from nearfar.core.modality import MODALITY_SETTINGS
from nearfar.encoders import list_encoder_families
from nearfar.modalities import find_modality, list_modalities
from nearfar.recipes import list_methods
from nearfar.recipes.method_summary import read_method_summary

every_recipe = pytest.mark.parametrize("name", list_methods())
GENERAL = [field.name for kind in (TrainConfig, RuntimeConfig) for field in dataclasses.fields(kind) if field.name not in MODALITY_SETTINGS]


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def run(argv: list[str], capsys) -> tuple[int, str, str]:
    code = main(argv)
    return code, *capsys.readouterr()


def flags_of(text: str) -> list[str]:
    """Return the flags that a help text explains, as field names, in order."""
    return [flag.replace("-", "_") for flag in re.findall(r"^  (?:-\w, )?--([a-z][a-z-]*)", text, re.MULTILINE)]


@every_recipe
def test_short_help_fits_90_lines_of_80_columns(name, capsys):
    code, text, err = run(["fit", name, "--help"], capsys)
    assert (code, err) == (0, "")
    lines = text.splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 80


@every_recipe
def test_short_help_shows_own_settings_first_and_then_everyday_flags(name, capsys):
    summary = read_method_summary(name)
    modality = find_modality(summary.card.modality)
    expected = [*(setting.name for setting in summary.settings), *EVERYDAY, *modality.settings, "verbose", "quiet", "help"]
    assert flags_of(run(["fit", name, "--help"], capsys)[1]) == expected


@every_recipe
def test_help_all_shows_everything_that_applies_and_nothing_else(name, capsys):
    summary = read_method_summary(name)
    text = run(["fit", name, "--help-all"], capsys)[1]
    own, settings = [setting.name for setting in summary.settings], find_modality(summary.card.modality).settings
    everything = [*own, *GENERAL, *settings, *COMMAND_FLAGS, "verbose", "quiet", "help"]
    found = flags_of(text)
    assert sorted(found) == sorted(everything)
    assert found[: len(own)] == own
    hidden = set(everything) - set(flags_of(run(["fit", name, "--help"], capsys)[1]))
    short = run(["fit", name, "-h"], capsys)[1]
    assert short.endswith(f"`nearfar fit {name} --help-all` shows {len(hidden)} more flags.\n")


@every_recipe
def test_every_setting_of_a_recipe_has_a_help_text(name):
    assert all(setting.help for setting in read_method_summary(name).settings)


def test_help_without_a_recipe_is_short_and_names_list(capsys):
    text = run(["fit", "--help"], capsys)[1]
    assert len(text.splitlines()) <= 45
    assert "nearfar list" in text
    assert set(flags_of(text)) == {*EVERYDAY, "verbose", "quiet", "help"}
    assert len(flags_of(run(["fit", "--help-all"], capsys)[1])) == len({*GENERAL, *COMMAND_FLAGS}) + 3


def test_data_and_encoders_of_other_modalities_are_not_explained(capsys):
    image = " ".join(run(["fit", "simclr", "--help"], capsys)[1].split())
    assert "CIFAR-10" in image
    assert "resnet18" in image
    for word in ("SQuAD", "wav,", "bert-tiny", "gin-3x32", "--sample-rate", "--vocab-size", "--columns"):
        assert word not in image
    sound = " ".join(run(["fit", "cpc-audio", "--help"], capsys)[1].split())
    assert "folder of wav, flac or ogg files" in sound
    assert "--sample-rate" in sound
    assert "--image-size" not in sound


def test_flags_of_other_modalities_are_refused_in_one_line(capsys, tmp_path):
    for flag in ("sample-rate", "vocab-size"):
        code, out, err = run(["fit", "simclr", "--data", "digits", "--out", str(tmp_path / "run"), f"--{flag}", "3"], capsys)
        assert (code, out) == (2, "")
        assert err == f"nearfar: error: --{flag} has no effect on the modality 'image' of SimCLR: leave it out\n"


def test_unknown_flags_never_suggest_flags_of_other_modalities(capsys):
    assert "sample-rate" not in run(["fit", "simclr", "--sampel-rate", "3"], capsys)[2]
    assert "Did you mean '--sample-rate'" in run(["fit", "cpc-audio", "--sampel-rate", "3"], capsys)[2]
    assert "Did you mean '--weight-decay'" in run(["fit", "simclr", "--weigth-decay", "3"], capsys)[2]


@pytest.mark.parametrize("name", list_modalities())
def test_modality_help_is_read_as_the_class_has_it(name):
    read, modality = read_modality_help(name), find_modality(name)
    assert (read.settings, read.data_help, read.encoder_help) == (modality.settings, modality.data_help, modality.encoder_help)
    assert read.data_help.endswith(".")
    assert read.encoder_help.endswith(".")
    for dataset in modality.bundled[:1]:
        assert f"'{dataset}'" in read.data_help
    assert list_modality_settings() == MODALITY_SETTINGS


def test_a_custom_modality_has_no_help_of_its_own():
    assert read_modality_help("smells").settings == ()


@pytest.mark.parametrize("name", list_modalities())
def test_encoders_in_the_help_exist(name):
    patterns = [builder.replace("LAYERSxWIDTH", r"\d+x\d+") for family in list_encoder_families() for builder in family.builders]
    text = read_modality_help(name).encoder_help
    named = re.findall(r"\b(?:convnet|resnet|bert|gru|bag|mel|wave|gcn|gin|nature|mlp)\w*(?:-\w+)*", text.replace("mlp-LAYERSxWIDTH", ""))
    assert named or "have none" in text
    for encoder in named:
        assert any(re.fullmatch(pattern, encoder) for pattern in patterns), encoder
