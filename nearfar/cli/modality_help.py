"""Settings and help texts of a modality, read from its file without importing it."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.core.python_source import PACKAGE_FOLDER, evaluate_literal, get_assigned_values, parse_file, read_class_literals


@dataclass(frozen=True)
class ModalityHelp:
    """Part of the help of `nearfar fit` that depends on the modality."""

    settings: tuple[str, ...] = ()
    """Settings that only some modalities read and that apply to this one."""
    data_help: str = ""
    """Kinds of data that `--data` opens."""
    encoder_help: str = ""
    """Encoders that `--encoder` names."""


def read_modality_help(name: str) -> ModalityHelp:
    """Read the help of a modality.

    It is empty for a modality without a file, as custom recipes may have.
    """
    path = PACKAGE_FOLDER / "modalities" / f"{name.replace('-', '_')}.py"
    if not path.is_file():
        return ModalityHelp()
    found = read_class_literals(path, "name")
    return ModalityHelp(found.get("settings", ()), found.get("data_help", ""), found.get("encoder_help", ""))


def list_modality_settings() -> tuple[str, ...]:
    """Return the names of the settings that only some modalities read."""
    values = get_assigned_values(parse_file(PACKAGE_FOLDER / "core" / "modality.py").body)
    return evaluate_literal(values["MODALITY_SETTINGS"])
