"""Train a method on your data, or resume a stopped run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.cli import terminal
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.fit_flags import build_fit_parser
from nearfar.core import UsageError
from nearfar.recipes import list_methods
from nearfar.recipes.method_summary import find_method_summary

GROUP = "Training"


def _chosen_recipe(argv: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the recipe and the word of argv that names it.

    The word is None if the recipe comes from the file after --config. The word may stand anywhere in argv.
    The flags of all recipes are parsed first. Some of the remaining words may be values of the recipe's own
    flags, such as 0.2 in `fit --temperature 0.2 simclr`. Known recipe names are therefore preferred.
    """
    found, words = build_fit_parser(None).parse_known_args(argv)
    known = list_methods()
    word = next((word for word in words if word in known or word.endswith(".py")), None)
    word = word or next((word for word in words[:1] if not word.startswith("-")), None)
    if word is None and "config" in found:
        from nearfar.recipes import is_user_recipe
        from nearfar.train.run_folder import read_config

        name = read_config(found.config)["recipe"]
        if is_user_recipe(str(name)):
            file = name if name.endswith(".py") else "FILE"
            raise UsageError(f"{found.config} is of {name}, a custom recipe: `nearfar fit {file} --config …` runs it, if you trust it")
        return name, None
    return word, word


def run(argv: Sequence[str]) -> None:
    """Run `nearfar fit`."""
    recipe, word = _chosen_recipe(argv)
    summary = find_method_summary(recipe) if recipe else None
    if "--help-all" in argv:
        build_fit_parser(summary, show_all=True).print_help()
        return
    given = parse_flags(build_fit_parser(summary), argv, positional=word)
    quiet = given.pop("quiet", False)
    if "resume" in given:
        _check_resume(given, word)
    else:
        _check_fit(given, recipe)
        given["config_file"] = given.pop("config", None)
        given["preset"] = next((name for name in ("tiny", "paper") if given.pop(name, False)), None)
    from nearfar.api.fit import fit, resume
    from nearfar.cli.progress_bar import ProgressBar
    from nearfar.train.process_group import LostRankError

    folder = given.get("resume") or given["out"]
    named = shlex.quote(folder)
    watching: dict[str, Any] = {"hooks": [ProgressBar(quiet)], "progress": terminal.show_progress("reading", quiet)}
    try:
        if "resume" in given:
            model = resume(folder, recipe=word, accept_changes=given.get("accept_changes", False), **watching)
        else:
            model = fit(recipe, **given, **watching)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_way_back(folder, recipe)) from None
    except LostRankError as e:
        raise LostRankError(f"{e}: {_way_back(folder, recipe)}, on any number of ranks") from e
    if not quiet:
        code = recipe if "resume" not in given else word
        own = f" --recipe {shlex.quote(code)}" if code and code.endswith(".py") else ""
        print(f"{folder}: {model.step:,} steps done. Next: `nearfar eval {named}{own}`, `nearfar report {named}{own}`", file=sys.stderr)


def _way_back(folder: str, recipe: str | None) -> str:
    own = f"{shlex.quote(recipe)} " if recipe and recipe.endswith(".py") else ""
    started = (Path(folder) / "config.json").exists()
    return f"`nearfar fit {own}--resume {shlex.quote(folder)}` resumes from here" if started else "nothing was written"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_resume(given: dict[str, Any], word: str | None) -> None:
    others = [_flag(name) for name in given if name not in ("resume", "accept_changes")] + (
        [repr(word)] if word and not word.endswith(".py") else []
    )
    if others:
        raise UsageError(f"--resume continues a run with its own settings: leave out {', '.join(others)}")


def _check_fit(given: dict[str, Any], recipe: str | None) -> None:
    """Raise on wrong or missing flags before any data are read."""
    if recipe is None:
        raise UsageError("name a recipe, as in `nearfar fit simclr --data DATA --out RUN`; `nearfar list` shows all")
    if given.get("accept_changes"):
        raise UsageError("--accept-changes belongs to --resume RUN: leave it out")
    if "out" not in given:
        raise UsageError("--out is missing: give the output folder of the run")
    for one, other in (("steps", "epochs"), ("tiny", "paper"), ("tiny", "config"), ("paper", "config")):
        if given.get(one) and given.get(other):
            raise UsageError(f"give {_flag(one)} or {_flag(other)}, not both")
    if not (given.keys() & {"data", "tiny", "config"}):
        known = "'digits', a folder of images or sounds, a file of texts, a graph, …"
        raise UsageError(f"--data is missing: {known} (`nearfar fit {recipe} --help` names all; --tiny needs none)")
