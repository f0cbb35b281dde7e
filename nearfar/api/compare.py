"""Comparison of several runs: results with their spread over seeds, cost and differing settings.

Runs that differ only in the seed share one row. Results on other data or under another protocol are shown and
marked as not comparable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearfar import recipes
from nearfar.api.evaluate import evaluate_model
from nearfar.api.load import load
from nearfar.core import UsageError
from nearfar.evaluate.run_results import RunResults
from nearfar.evaluate.stored_results import StoredResults, read_stored_results, store_results
from nearfar.reports.comparison_table import NON_PROTOCOL_FIELDS, Comparison, ComparisonRow
from nearfar.train.run_folder import RunFolder, compute_training_seconds
from nearfar.train.user_recipes import TrustedRecipes, warn_if_recipe_file_changed


def compare_runs(
    paths: Sequence[str | os.PathLike],
    *,
    device: str = "auto",
    recipe: TrustedRecipes = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Return the comparison of several runs.

    Results are read from the run folders. A run without results is evaluated now, and its results are stored
    in its folder.

    Args:
        paths: at least two run folders.
        device: device of the evaluation.
        recipe: files or classes of custom recipes. Each is used for the runs that were trained with it.
        progress: called with the number of encoded samples and the number of all samples.

    Raises:
        UsageError: if `paths` holds fewer than two different runs.
    """
    if len({os.path.realpath(path) for path in paths}) < 2:
        raise UsageError("name at least two different runs to compare, as in `nearfar compare RUN RUN`")
    runs, repeated = _once_a_seed([read_run_results(path, device, recipe, progress) for path in paths])
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    settings = _differing([group[0].settings for group in groups.values()])
    rows = [
        ComparisonRow(_name(i, list(groups.values()), settings), tuple(run.measured_values for run in group), tuple(group))
        for i, group in enumerate(groups.values())
    ]
    shown = {name: [_value(v) for v in values] for name, values in settings.items()}
    return Comparison(_told_apart(rows), _floors(runs), shown, find_differences(runs), [*repeated, *_notes(runs, rows)])


def _once_a_seed(runs: Sequence[RunResults]) -> tuple[list[RunResults], list[str]]:
    """Return the first run of each pair of settings and seed, and notes on the others.

    A repeated run is not an independent sample, so it is not counted.
    """
    found: dict[str, RunResults] = {}
    notes = []
    for run in runs:
        first = found.setdefault(json.dumps([run.settings, run.seed, run.stored_config["data"]["fingerprint"]], sort_keys=True), run)
        if first is not run:
            notes.append(f"{run.path.name} repeats seed {run.seed} of {first.path.name} and is not counted.")
    return list(found.values()), notes


def find_differences(runs: Sequence[RunResults]) -> list[str]:
    """Return the reasons why the runs are not comparable.

    The result is empty if they are comparable.
    """
    found = []
    by_data = _by(
        runs, lambda run: run.stored_config["train_config"]["data"] or f"an array of {run.stored_config['data']['train']:,} samples"
    )
    if len(by_data) > 1:
        found.append(f"different data: {_listed(by_data)}")
    for name, same in by_data.items():
        sizes = _by(
            same, lambda run: f"{run.stored_config['data']['train']:,} training and {run.stored_config['data']['test']:,} test samples"
        )
        if len(sizes) > 1:
            found.append(f"{name} changed between the runs: {_listed(sizes)}")
            continue
        for seed, alike in _by(same, lambda run: str(run.seed)).items():
            marks = _by(alike, lambda run: run.stored_config["data"]["fingerprint"][:8])
            if len(marks) > 1:
                found.append(f"{name} changed between runs of seed {seed} (fingerprints): {_listed(marks)}")
    measured_runs = [run for run in runs if run.stored_results.table]
    keys = sorted(
        {key for run in measured_runs if run.stored_results.table for key in run.stored_results.table.protocol} - NON_PROTOCOL_FIELDS
    )
    for key in keys:
        values = _by(
            measured_runs,
            lambda run, key=key: str(run.stored_results.table.protocol.get(key, "not measured")),  # type: ignore[union-attr]
        )
        if len(values) > 1:
            found.append(f"different protocol, {key}: {_listed(values)}")
    return found


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings that differ between rows.

    A setting that only some recipes have counts if it differs between two rows that have it.
    """
    found = {}
    for name in dict.fromkeys(name for row in settings for name in row):
        values = [row.get(name) for row in settings]
        own = {json.dumps(row[name]) for row in settings if name in row}
        if len(own) > 1:
            found[name] = values
    return found


def _name(row: int, groups: Sequence[Sequence[RunResults]], settings: Mapping[str, Sequence[Any]]) -> str:
    """Return the recipe name and the settings that set the row apart."""
    mine = groups[row][0].settings
    others = [i for i, group in enumerate(groups) if group[0].settings["recipe"] == mine["recipe"] and i != row]
    apart = [name for name, values in settings.items() if any(values[i] != values[row] for i in others)]
    recipe = Path(mine["recipe"]).name
    return " ".join([recipe, *(f"{name}={_value(mine.get(name))}" for name in apart)])


def _told_apart(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    names = [row.name for row in rows]
    return [ComparisonRow(f"{r.name} #{i + 1}" if names.count(r.name) > 1 else r.name, r.values, r.runs) for i, r in enumerate(rows)]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else Path(value).name if isinstance(value, str) and value.startswith("/") else str(value)


def _floors(runs: Sequence[RunResults]) -> list[ComparisonRow]:
    """Return the baselines of all runs.

    The result is empty if the runs use different data. Equal baselines (same seed, same results) count once.
    """
    if len({run.stored_config["train_config"]["data"] for run in runs}) > 1:
        return []
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        for name, result in run.results.items():
            if result["baseline"]:
                found.setdefault(name, {})[json.dumps([run.seed, result])] = result
    return [ComparisonRow(name, tuple(values.values())) for name, values in found.items()]


def _notes(runs: Sequence[RunResults], rows: Sequence[ComparisonRow]) -> list[str]:
    notes = []
    fresh = [run.path.name for run in runs if run.newly_measured and run.stored_results.table]
    if fresh:
        notes.append(f"Evaluated now, results kept in results.json: {', '.join(fresh)}.")
    notes += [f"{run.path.name} has no results: {run.stored_results.problem}." for run in runs if run.stored_results.problem]
    early = [
        f"{run.path.name} (step {run.stored_results.step} of {run.stored_config['train_config']['steps']})"
        for run in runs
        if _unfinished(run)
    ]
    if early:
        notes.append(f"Not finished: {', '.join(early)}.")
    told = {bool(_uses_labels(run)) for run in runs}
    if len(told) > 1:
        notes.append(f"Labels were seen in training by: {', '.join(run.path.name for run in runs if _uses_labels(run))}.")
    seeds = {row.name: tuple(sorted(run.seed for run in row.runs)) for row in rows}
    if len(set(seeds.values())) > 1:
        of = "; ".join(f"{name}: {', '.join(map(str, s))}" for name, s in seeds.items())
        notes.append(f"Seeds differ between rows ({of}): the seed also sets the split if the data have none.")
    if any(len(row.runs) > 1 for row in rows):
        notes.append("± is the standard deviation over runs of other seeds (n - 1).")
    if any(len(row.runs) < 3 for row in rows):
        notes.append("Rows of fewer than 3 seeds: a difference may be chance.")
    return notes


def _unfinished(run: RunResults) -> bool:
    return run.stored_results.step < (run.stored_config["train_config"]["steps"] or 0)


def _uses_labels(run: RunResults) -> bool:
    name = run.stored_config["recipe"]
    return name in recipes.list_methods() and recipes.load_method(name).recipe_class.uses_labels


def _by(runs: Sequence[RunResults], name: Callable[[RunResults], str]) -> dict[str, list[RunResults]]:
    found: dict[str, list[RunResults]] = {}
    for run in runs:
        found.setdefault(name(run), []).append(run)
    return found


def _listed(groups: Mapping[str, Sequence[RunResults]]) -> str:
    return "; ".join(f"{name} ({', '.join(run.path.name for run in group)})" for name, group in groups.items())


def read_or_measure_results(
    path: str | os.PathLike,
    device: str = "auto",
    recipe: TrustedRecipes = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[StoredResults, bool]:
    """Return the results of a run, and True if they were measured now.

    If a run has no data to be measured on, `problem` of the result states the reason.
    """
    if (found := read_stored_results(RunFolder.open(path))) is not None:
        return found, False
    model = load(path, device, recipe)
    try:
        return store_results(model, evaluate_model(model, progress=progress)), True
    except UsageError as e:
        return store_results(model, None, str(e)), True


def read_run_results(
    path: str | os.PathLike, device: str, recipe: TrustedRecipes, progress: Callable[[int, int], None] | None
) -> RunResults:
    """Return the results, configuration and training time of a run."""
    folder = RunFolder.open(path)
    stored_config = folder.read_config()
    found, fresh = read_or_measure_results(path, device, recipe, progress)
    if not fresh:  # loading the model would already have warned
        warn_if_recipe_file_changed(stored_config, folder.path)
    return RunResults(folder.path, stored_config, found, compute_training_seconds(folder.read_metrics()), fresh)
