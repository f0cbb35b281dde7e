"""Section of docs/results.md on sound recipes: gains over two floors, and the settings behind each row."""

from __future__ import annotations

from typing import Any

from results_more import Found, Table, percent

from nearfar import recipes

METRICS = {"few_labels": "5 labels a class", "linear": "all labels", "knn": "kNN"}
FLOORS = ("untrained encoder", "log-mel statistics")
INPUTS = {"mel": "log-mel bands"}
"""What an encoder reads."""


def sound(found: Found, table: Table) -> str:
    """Return the table of gains and the table of settings."""
    rows = []
    for row in found["summary"]:
        gains = [_plus_minus(row[f"gain over {floor}"], row[f"standard error, {floor}"]) for floor in FLOORS]
        verdict = "**open**" if row["seeds"] < 3 else "**short**" if row["short"] else "above"
        name = f"`{row['experiment']}`, {METRICS[row['metric']]}"
        rows.append([name, str(row["seeds"]), percent(row["trained encoder"]), *gains, verdict])
    gains = table(
        [
            "recipe and data",
            "seeds",
            "trained",
            "over the untrained encoder",
            "over log-mel statistics",
            "verdict",
        ],
        rows,
    )
    return f"{gains}\n\nSettings of these rows:\n\n{_settings(found, table)}"


def _plus_minus(gain: float, error: float | None) -> str:
    return f"{100 * gain:+.1f}" + (f" ± {100 * error:.1f}" if error is not None else "")


def _settings(found: Found, table: Table) -> str:
    """Return a line for each experiment, from the settings that its rows store."""
    lines = []
    for name in sorted({row["experiment"] for row in found["rows"]}):
        rows = [row for row in found["rows"] if row["experiment"] == name]
        stored = [row["settings"] for row in rows if row.get("settings", "unknown") != "unknown"]
        grid = found["grid"][name]
        used = [setting for setting, values in grid.items() if values in stored]
        some = "" if len(stored) == len(rows) else f" (stored for {len(stored)} of {len(rows)} rows)"
        encoders = [str(values["encoder"]) for values in stored]
        inputs = ", ".join(sorted({INPUTS.get(encoder, encoder) for encoder in encoders}))
        negatives = ", ".join(sorted({_own_clip(name, values) for values in stored}))
        lines.append([f"`{name}`", ", ".join(used) + some, _selected(name, found.get("selection")), inputs, negatives])
    return table(["recipe and data", "setting", "selected from", "input", "negatives of the same clip"], lines)


def _own_clip(name: str, settings: dict[str, Any]) -> str:
    """Return whether moments of the anchor's own clip are negatives. Recipes on whole clips have no such setting."""
    default = getattr(recipes.load_method(name.split("/")[0]).recipe_class, "same_clip_negatives", None)
    own_clip = settings.get("same_clip_negatives", default)
    return "–" if own_clip is None else "yes" if own_clip else "no"


def _selected(name: str, selection: Found | None) -> str:
    """Return how many settings of an experiment were compared on validation groups."""
    compared = {row["setting"] for row in (selection or {"rows": []})["rows"] if row["experiment"] == name}
    return f"{len(compared)}, on other groups" if len(compared) > 1 else "not compared"


SECTIONS = (
    (
        "Sound",
        "benchmarks/sound.py",
        "sound",
        "A speaker (FSDD) or a fold (ESC-10) is held out in turn. *above*: the gain is more than twice "
        "the paired standard error over both floors. Where several settings were compared on validation "
        "groups, a row uses the one that is best on groups other than its held-out one. Elsewhere it uses "
        "the first setting of the grid in the script. The views and negatives of `cpc-audio` and "
        "`wav2vec2` were decided on short runs measured on FSDD's jackson and nicolas and on fold 2 of "
        "ESC-10; seed 1 of these recipes holds out jackson and fold 2.",
        sound,
    ),
)
