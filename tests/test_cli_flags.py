"""The bridge from dataclasses to flags, on dataclasses of its own."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.cli.flags import FlagParser, read_value
from nearfar.core import RuntimeConfig, TrainConfig, UsageError
from nearfar.core.setting_fields import format_type, format_value, list_fields, read_field_docs

Norm = Literal["batch", "none"]


@dataclass(frozen=True)
class Base:
    tau: float = 0.5
    """Temperature: at 5%
    it is sharp."""
    dim: int = 128
    """Width."""


@dataclass(frozen=True)
class Method(Base):
    dim: int = 64
    """Width of the head."""
    hidden: tuple[int, ...] = (32, 16)
    """Widths of hidden layers."""
    norm: Norm = "batch"
    clip: float | None = None
    """Largest norm."""
    name: str | None = None
    size: int | None = None
    """Pixels. Default: their own."""
    stop_early: bool = False
    """Whether to stop."""


def parser() -> FlagParser:
    made = FlagParser("nearfar try", "[flags]", "A test.")
    made.add_field_flags("method", Method)
    made.add_common_flags()
    return made


def test_only_what_was_given_comes_back_and_with_its_type():
    assert parser().parse_given_flags([]) == {}
    argv = shlex.split("--tau 2e-1 --dim 7 --hidden 8,4,2 --norm none --clip 1 --name x --size none --stop-early")
    expected = {"tau": 0.2, "dim": 7, "hidden": (8, 4, 2), "norm": "none", "clip": 1.0, "name": "x", "size": None, "stop_early": True}
    found = parser().parse_given_flags(argv)
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]
    assert parser().parse_given_flags(["--no-stop-early", "--tau=-1.5"]) == {"stop_early": False, "tau": -1.5}


def test_help_strings_are_read_from_the_source_and_the_nearest_class_wins():
    assert read_field_docs(Method)["tau"] == "Temperature: at 5% it is sharp."
    assert read_field_docs(Method)["dim"] == "Width of the head."
    assert read_field_docs(Base)["dim"] == "Width."
    assert "norm" not in read_field_docs(Method)


def test_every_flag_of_a_run_and_a_machine_has_help_and_a_type():
    for flag in (*list_fields(TrainConfig), *list_fields(RuntimeConfig)):
        assert len(flag.help) > 10, flag
        assert format_type(flag.kind), flag


def test_a_class_without_source_has_flags_without_help():
    made = type("Made", (), {"__annotations__": {"width": int}, "width": 3})
    (flag,) = list_fields(dataclass(made))
    assert (flag.dashed, flag.default, flag.help) == ("--width", 3, "")


def test_help_shows_types_defaults_and_choices(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        parser().parse_given_flags(["--tau", "0.3", "-h"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--tau FLOAT Temperature: at 5% it is sharp. Default: 0.5." in text
    assert "--hidden INT,INT,… Widths of hidden layers. Default: 32,16." in text
    assert "--norm {batch,none} Default: batch." in text
    assert "--clip FLOAT|none Largest norm." in text
    assert "--size INT|none Pixels. Default: their own. --stop-early, --no-stop-early Whether to stop. Default: off." in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--tau abc", "--tau: 'abc' is not a finite number"),
        ("--tau nan", "--tau: 'nan' is not a finite number"),
        ("--dim 2.5", "--dim: '2.5' is not a whole number"),
        ("--hidden 3,x", "--hidden: 'x' is not a whole number"),
        ("--norm bach", "--norm: 'bach' is not one of batch, none. Did you mean 'batch'?"),
        ("--tauu 3", "unknown flag --tauu. Did you mean '--tau'? `nearfar try --help` shows all"),
        ("--ta 3", "unknown flag --ta. Did you mean '--tau'? `nearfar try --help` shows all"),
        ("--norm=batch --zzzzzz=3", "unknown flag --zzzzzz. `nearfar try --help` shows all"),
        ("--dim", "--dim: expected one argument"),
        ("word", "'word' is an unexpected argument; `nearfar try --help` shows the accepted arguments"),
    ],
)
def test_mistakes_are_one_line(argv, message):
    with pytest.raises(UsageError) as error:
        parser().parse_given_flags(argv.split())
    assert str(error.value) == message


@given(st.lists(st.integers(), min_size=1).map(tuple), st.floats(allow_nan=False, allow_infinity=False))
def test_values_are_read_back_as_they_were_written(numbers, number):
    assert read_value(tuple[int, ...], format_value(numbers)) == numbers
    assert read_value(float, repr(number)) == number
    assert read_value(float | None, format_value(number)) == pytest.approx(number, rel=1e-5)


def test_unions_take_the_first_that_reads():
    assert [type(read_value(int | float | None, text)) for text in ("3", "3.5", "none")] == [int, float, type(None)]
    assert format_type(int | float | None) == "INT|FLOAT|none"
    with pytest.raises(argparse.ArgumentTypeError, match="'None' is not a whole number"):
        read_value(int | None, "None")


def test_a_type_without_a_flag_is_the_programmers_mistake():
    with pytest.raises(TypeError, match="cannot create a flag"):
        format_type(dict[str, int])
