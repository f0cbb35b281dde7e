"""The commands, one function each: flags in, a call of `nearfar.api.fit`, a result on stdout."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nearfar import recipes
from nearfar.cli import terminal
from nearfar.cli.flags import Parser, value_of
from nearfar.core import Machine, Run, UsageError
from nearfar.core.errors import did_you_mean
from nearfar.recipes import Method
from nearfar.train.launch import RankLost, follows


def parse_flags(parser: Parser, argv: Sequence[str], positional: str | None = None) -> dict[str, Any]:
    """The flags given; -v and -q have taken effect."""
    given = parser.parse(argv, positional)
    given["quiet"] = given.get("quiet", False) or follows()
    terminal.console_logging(verbose=given.pop("verbose", False), quiet=given["quiet"])
    return given


def list_methods(argv: Sequence[str]) -> None:
    parser = Parser("nearfar list", "[--modality NAME] [--json]", "All methods, one a line.")
    parser.add_argument("--modality", metavar="NAME", help="only methods for this kind of data, such as image")
    parser.add_argument("--json", action="store_true", help="a JSON list of objects")
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.reports import method_card as cards

    rows = [cards.row(recipes.method(name)) for name in recipes.names()]
    wanted, known = given.get("modality"), sorted({row["modality"] for row in rows})
    if wanted is not None and wanted not in known:
        raise UsageError(f"--modality: there is no method for {wanted!r}.{did_you_mean(wanted, known)} Known: {', '.join(known)}")
    rows = [row for row in rows if wanted in (None, row["modality"])]
    if given.get("json"):
        print(json.dumps(rows, indent=2))
    else:
        terminal.print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def card(argv: Sequence[str]) -> None:
    parser = Parser(
        "nearfar card", "RECIPE [--json]", "What a method claims, its equation, its hyperparameters, settings and numbers of its paper."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="a name that `nearfar list` shows, or a Python file of your own")
    parser.add_argument("--json", action="store_true", help="the same as a JSON object")
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.reports import method_card as cards

    method = recipes.method(given["recipe"])
    print(json.dumps(cards.as_data(method), indent=2) if given.get("json") else cards.as_text(method))


def fit_parser(method: Method | None) -> Parser:
    """The flags of fit: its own, the recipe's where one is chosen, and those of every run and machine."""
    known = f"recipes: {', '.join(recipes.names())}, or a Python file of your own that defines one"
    more = "" if method else "\n`nearfar fit RECIPE --help` shows the hyperparameters of a recipe too."
    name = method.name if method else "RECIPE"
    usage = f"--data DATA --out RUN [flags]\n       nearfar fit {name} --tiny --out RUN\n       nearfar fit --resume RUN"
    about = (
        f"Train {method.recipe.card.title if method else 'a recipe'}. Flags that are not given stay as the preset or the default has them."
    )
    parser = Parser(f"nearfar fit {name}" if method else "nearfar fit", usage if method else f"RECIPE {usage}", about, f"{known}{more}")
    group = parser.add_argument_group("what to run")
    group.add_argument("--out", metavar="RUN", help="the folder to make and keep the run in")
    group.add_argument(
        "--tiny", action="store_true", help="the recipe's settings for a look within seconds, on data that ship with a dependency"
    )
    group.add_argument("--paper", action="store_true", help="the settings of the recipe's paper")
    group.add_argument("--config", metavar="FILE", help="start from the settings in a run's config.json")
    group.add_argument("--overwrite", action="store_true", help="replace the run that is in --out")
    group.add_argument("--resume", metavar="RUN", help="continue a stopped run from its newest good checkpoint")
    group.add_argument(
        "--accept-changes",
        action="store_true",
        help="with --resume: use config.json even if the checkpoint was written with other settings",
    )
    if method:
        parser.add_fields(f"{name}: its hyperparameters", method.recipe)
    parser.add_fields("training: what else the result depends on", Run)
    parser.add_fields("machine: where and how it is computed", Machine)
    parser.add_common()
    return parser


def _chosen_recipe(argv: Sequence[str]) -> tuple[str | None, str | None]:
    """The recipe, and the word of argv that names it (none: the file after --config does).

    The word may stand anywhere. The flags of all recipes are understood first; of the words that are left some may
    belong to the recipe's own flags, as 0.2 in `fit --tau 0.2 simclr`: hence a known name is preferred.
    """
    found, words = fit_parser(None).parse_known_args(argv)
    known = recipes.names()
    word = next((word for word in words if word in known or word.endswith(".py")), None)
    word = word or next((word for word in words[:1] if not word.startswith("-")), None)
    if word is None and "config" in found:
        from nearfar.train.run_folder import read_config

        name = read_config(found.config)["recipe"]
        if recipes.is_own(str(name)):
            file = name if name.endswith(".py") else "FILE"
            raise UsageError(f"{found.config} is of {name}, a recipe of its own: `nearfar fit {file} --config …` runs it, if you trust it")
        return name, None
    return word, word


def fit(argv: Sequence[str]) -> None:
    recipe, word = _chosen_recipe(argv)
    given = parse_flags(fit_parser(recipes.method(recipe) if recipe else None), argv, positional=word)
    quiet = given.pop("quiet", False)
    if "resume" in given:
        _check_resume(given, word)
    else:
        _check_fit(given, recipe)
        given["preset"] = next((name for name in ("tiny", "paper") if given.pop(name, False)), None)
    from nearfar.api import fit as api

    folder = given.get("resume") or given["out"]
    named = shlex.quote(folder)
    watching: dict[str, Any] = {"hooks": [terminal.ProgressBar(quiet)], "progress": terminal.progress("reading", quiet)}
    try:
        if "resume" in given:
            trained = api.resume(folder, recipe=word, accept_changes=given.get("accept_changes", False), **watching)
        else:
            trained = api.fit(recipe, **given, **watching)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_way_back(folder, recipe)) from None
    except RankLost as e:
        raise RankLost(f"{e}: {_way_back(folder, recipe)}, on any number of ranks") from e
    if not quiet:
        code = recipe if "resume" not in given else word
        own = f" --recipe {shlex.quote(code)}" if code and code.endswith(".py") else ""
        print(f"{folder}: {trained.step:,} steps done. Next: `nearfar eval {named}{own}`, `nearfar report {named}{own}`", file=sys.stderr)


def _way_back(folder: str, recipe: str | None) -> str:
    own = f"{shlex.quote(recipe)} " if recipe and recipe.endswith(".py") else ""
    started = (Path(folder) / "config.json").exists()
    return f"`nearfar fit {own}--resume {shlex.quote(folder)}` goes on from here" if started else "nothing was written"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_resume(given: dict[str, Any], word: str | None) -> None:
    others = [_flag(name) for name in given if name not in ("resume", "accept_changes")] + (
        [repr(word)] if word and not word.endswith(".py") else []
    )
    if others:
        raise UsageError(f"--resume goes on with a run as it is: leave out {', '.join(others)}")


def _check_fit(given: dict[str, Any], recipe: str | None) -> None:
    """What can be said before anything is read."""
    if recipe is None:
        raise UsageError("name a recipe, as in `nearfar fit simclr --data DATA --out RUN`; `nearfar list` shows all")
    if given.get("accept_changes"):
        raise UsageError("--accept-changes belongs to --resume RUN: leave it out")
    if "out" not in given:
        raise UsageError("--out is missing: the folder to keep the run in")
    for one, other in (("steps", "epochs"), ("tiny", "paper"), ("tiny", "config"), ("paper", "config")):
        if given.get(one) and given.get(other):
            raise UsageError(f"give {_flag(one)} or {_flag(other)}, not both")
    if not (given.keys() & {"data", "tiny", "config"}):
        known = "'digits', a folder of images or sounds, a file of texts, a graph, …"
        raise UsageError(f"--data is missing: {known} (`nearfar fit --help` names all; --tiny needs none)")


def add_own_recipe(parser: Parser) -> None:
    text = "the file of a recipe that is not nearfar's own; it is run. Given again for another: each run takes the one it was trained with."
    parser.add_argument("--recipe", action="append", metavar="FILE", help=text)


def add_device(parser: Parser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N. Default: auto.")


def add_on_error(parser: Parser) -> None:
    text = "stop at a sample that cannot be read, or leave it out. Default: as the run was told."
    parser.add_argument("--on-error", **value_of(Literal["stop", "skip"]), help=text)


def evaluate(argv: Sequence[str]) -> None:
    about = (
        "Measure a run on its test split, beside the untrained encoder and simple baselines (raw pixels, counted words, BM25, …).\n"
        "Images, texts, sounds, graphs: probes, neighbours, geometry. Questions: retrieval. Triples: link prediction. Words: similarity."
    )
    parser = Parser("nearfar eval", "RUN [--data DATA] [--json]", about)
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    parser.add_argument("--data", metavar="DATA", help="what `nearfar fit --data` takes. Default: the data of the run.")
    parser.add_argument("--json", action="store_true", help="the numbers with their protocol, as JSON")
    parser.add_argument("--k", **value_of(int), help="neighbours that vote. Default: 20.")
    parser.add_argument("--per-class", **value_of(int), help="labelled samples of each class where labels are few. Default: 5.")
    parser.add_argument("--C", **value_of(float), help="inverse penalty of the probes. Default: 1.")
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api import fit as api

    trained = api.load(given["run"], given["device"], given.get("recipe"))
    protocol = {name: given[name] for name in ("k", "per_class", "C") if name in given}
    progress = terminal.progress("embedding", given.get("quiet", False))
    table = api.evaluate(trained, given.get("data"), progress=progress, **protocol)
    if "data" not in given and not protocol:
        from nearfar.api.stored_results import keep

        keep(trained, table)
    print(table.to_json().rstrip() if given.get("json") else table.render())


def embed(argv: Sequence[str]) -> None:
    parser = Parser("nearfar embed", "RUN --data DATA --out FILE", "Write one vector for each sample.")
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    parser.add_argument("--data", required=True, metavar="DATA", help="what `nearfar fit --data` takes")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="vectors.npy, or vectors.parquet with names and labels beside the vectors"
    )
    parser.add_argument("--split", default="all", **value_of(Literal["train", "test", "all"]), help="which samples. Default: all.")
    parser.add_argument(
        "--engine",
        default="local",
        **value_of(Literal["local", "ray"]),
        help="ray: many processes, on this machine or on those of RAY_ADDRESS; the same vectors; goes on where a killed one stopped. "
        "Default: local.",
    )
    add_on_error(parser)
    parser.add_argument("--workers", **value_of(int), help="processes of --engine ray. Default: as many as the cluster has room for.")
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api import fit as api

    if "on_error" in given and given["engine"] == "ray":
        raise UsageError("--on-error is for --engine local: processes of ray read as the run was told")
    trained = api.load(given["run"], given["device"], given.get("recipe")).reading(given.get("on_error"))
    show = terminal.progress("embedding", given.get("quiet", False))
    spread = {"engine": given["engine"], "workers": given.get("workers")}
    n = api.embed(trained, given["data"], given["out"], split=given["split"], **spread, progress=show)
    print(f"{given['out']}: {n:,} vectors")


def export(argv: Sequence[str]) -> None:
    about = "Write the encoder into a folder that another library loads, without nearfar."
    parser = Parser("nearfar export", "RUN --to LIBRARY --out FOLDER", about)
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    parser.add_argument("--to", required=True, metavar="LIBRARY", help="onnx, torch, transformers or sentence-transformers")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make")
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api import fit as api

    print(api.export(api.load(given["run"], "cpu", given.get("recipe")), given["to"], given["out"]))


def report(argv: Sequence[str]) -> None:
    parser = Parser(
        "nearfar report",
        "RUN",
        "Write RUN/report.html: the method, the course of the training, the numbers, the pictures. It works offline.",
    )
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made")
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api import fit as api

    print(
        api.report(api.load(given["run"], recipe=given.get("recipe")), progress=terminal.progress("embedding", given.get("quiet", False)))
    )


def demo(argv: Sequence[str]) -> None:
    about = "Train, measure and report on data that ship with a dependency."
    parser = Parser("nearfar demo", "[--out FOLDER] [--seed N] [--overwrite]", about)
    parser.add_argument("--out", default="demo", metavar="FOLDER", help="the folder to make. Default: demo.")
    parser.add_argument("--seed", default=0, **value_of(int), help="names every random number. Default: 0.")
    parser.add_argument("--overwrite", action="store_true", help="replace the run that is in --out")
    parser.add_common()
    given = parse_flags(parser, argv)
    from nearfar.api import fit as api

    quiet = given.get("quiet", False)
    table = api.demo(given["out"], given["seed"], overwrite=given.get("overwrite", False), hooks=[terminal.ProgressBar(quiet)])
    print(table.render())
    if not quiet:
        print(f"The run is in {given['out']}; a browser opens {Path(given['out']) / 'report.html'}", file=sys.stderr)
