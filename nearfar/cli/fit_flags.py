"""Flags and help of `nearfar fit`.

The help shows the settings of the recipe and the everyday flags. `--help-all` adds all other flags that apply to the
modality of the recipe. Flags of other modalities are accepted, so that training can explain why they do not apply, but
never shown.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable
from typing import Any

from nearfar.cli.flags import FlagParser, add_setting_flag
from nearfar.cli.modality_help import ModalityHelp, list_modality_settings, read_modality_help
from nearfar.core.configs import RuntimeConfig, TrainConfig, get_field_names
from nearfar.core.setting_fields import SettingField, list_fields
from nearfar.recipes.method_summary import MethodSummary

EVERYDAY = ("data", "out", "tiny", "paper", "epochs", "steps", "batch_size", "lr", "encoder", "seed", "device", "resume", "overwrite")
"""Flags of the short help, in order."""
SHORT_HELP_GROUPS = {"everyday flags", "settings of the data"}
COMMAND_FLAGS: dict[str, dict[str, Any]] = {
    "out": {"metavar": "RUN", "help": "output folder of the run"},
    "tiny": {"action": "store_true", "help": "quick-start preset on a bundled dataset"},
    "paper": {"action": "store_true", "help": "preset with the published settings"},
    "resume": {"metavar": "RUN", "help": "continue a stopped run from its newest good checkpoint"},
    "overwrite": {"action": "store_true", "help": "replace an existing run in --out"},
    "config": {"metavar": "FILE", "help": "start from the settings in a run's config.json"},
    "accept_changes": {
        "action": "store_true",
        "help": "with --resume: use config.json even if the checkpoint was written with other settings",
    },
}
"""Flags of the command itself. All others are fields of the recipe, of `TrainConfig` and of `RuntimeConfig`."""


def build_fit_parser(summary: MethodSummary | None, show_all: bool = False) -> FlagParser:
    """Build the flag parser of `nearfar fit`.

    Args:
        summary: the recipe, if one is chosen.
        show_all: show all flags that apply in the help, not only the everyday ones.
    """
    parser = _start_parser(summary)
    modality = read_modality_help(summary.card.modality) if summary else ModalityHelp()
    settings = {setting.name: _add_modality_help(setting, modality) for setting in (*list_fields(TrainConfig), *list_fields(RuntimeConfig))}
    if summary:
        group = parser.add_argument_group(f"settings of {summary.name}", None if summary.settings else "none")
        for setting in summary.settings:
            add_setting_flag(group, setting)
    inapplicable = [name for name in list_modality_settings() if name not in modality.settings]
    groups: dict[str, Iterable[str]] = {
        "everyday flags": EVERYDAY,
        "settings of the data": modality.settings,
        "runs": COMMAND_FLAGS,
        "training: what else the result depends on": get_field_names(TrainConfig),
        "machine: where and how it is computed": get_field_names(RuntimeConfig),
    }
    placed = set(inapplicable)
    for title, names in groups.items():
        members = [name for name in names if name not in placed]
        _add_group(parser, title, members, settings, hidden=not (show_all or title in SHORT_HELP_GROUPS))
        placed.update(members)
    parser.add_common_flags()
    hidden = sum(action.help == argparse.SUPPRESS for action in parser._actions)
    parser.epilog = _write_epilog(summary, hidden)
    parser.add_argument("--help-all", action="store_true", help=argparse.SUPPRESS)
    for name in inapplicable:
        add_setting_flag(parser, settings[name], hidden=True)
        parser.unsuggested.add(settings[name].dashed)
    return parser


def _start_parser(summary: MethodSummary | None) -> FlagParser:
    name = summary.name if summary else "RECIPE"
    title = summary.card.title if summary else "a recipe"
    usage = f"--data DATA --out RUN [flags]\n       nearfar fit {name} --tiny --out RUN\n       nearfar fit --resume RUN"
    about = f"Train {title}. Flags that are not given keep the value of the preset or the default."
    if summary is None:
        about += "\nRecipes: the names of `nearfar list`, or a Python file with a custom recipe."
    parser = FlagParser(f"nearfar fit {name}", usage, about)
    parser.full_help_flag = "--help-all"
    return parser


def _add_group(parser: FlagParser, title: str, names: Iterable[str], settings: dict[str, SettingField], hidden: bool) -> None:
    group = parser.add_argument_group(title)
    for name in names:
        if name in settings:
            add_setting_flag(group, settings[name], hidden)
            continue
        options = dict(COMMAND_FLAGS[name])
        if hidden:
            options["help"] = argparse.SUPPRESS
        group.add_argument(f"--{name.replace('_', '-')}", **options)


def _add_modality_help(setting: SettingField, modality: ModalityHelp) -> SettingField:
    """Add the modality's part to the help of `--data` and `--encoder`."""
    more = {"data": modality.data_help, "encoder": modality.encoder_help}.get(setting.name, "")
    return dataclasses.replace(setting, help=f"{setting.help} {more}".strip())


def _write_epilog(summary: MethodSummary | None, hidden: int) -> str:
    """Return the last lines of the help: how to see more."""
    if summary is None:
        return "`nearfar list` shows the recipes, `nearfar fit RECIPE --help` the settings of one and the data that it takes."
    return f"`nearfar fit {summary.name} --help-all` shows {hidden} more flags." if hidden else ""
