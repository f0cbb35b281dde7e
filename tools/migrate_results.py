"""Rename settings in stored benchmark results to the names of version 0.2. No number changes.

    python tools/migrate_results.py [--check]

Reads tools/renames_0_2.json. Keys are renamed in objects that hold settings only: `settings`, `hyper`, `run`, `common`, `grid`. Results
that have the new names stay as they are. `--check` writes nothing and exits with code 1 if a file has old names.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NAMES = json.loads(Path(__file__).with_name("renames_0_2.json").read_text())
SECTIONS = {"hyper": "hyperparameters", "run": "train_config"}
"""Parts of a training's stored settings."""
HOLDERS = {"settings", "common", "grid", "hyperparameters", "train_config"}
"""Objects that hold settings."""
RECIPE_OF_FILE = {"transe": "transe", "node2vec": "node2vec", "emoji": "clip", "flickr8k": "clip", "games": "st-dim"}
"""Recipe of files whose rows do not name it."""
OWN_SETTINGS = {"jpegs", "views", "node2vec", "transe"}
"""Files whose settings are flags of their script, and no settings of nearfar."""
SHARED = ("tau", "grey", "smallest", "pool", "crop", "goal", "span", "own_clip", "shortest", "longest")
"""Fields of recipes that mean the same wherever they occur; renamed where a row does not name its recipe."""


def classes() -> dict[str, str]:
    """Return the recipe name of each recipe class, read from the files."""
    found = {}
    for path in (ROOT / "nearfar" / "recipes").glob("*/*.py"):
        for name in re.findall(r"^class (\w+)\(", path.read_text(), re.MULTILINE):
            found[name] = path.stem.replace("_", "-")
    for path in (ROOT / "benchmarks" / "claims").glob("*.py"):
        for name, base in re.findall(r"^class (\w+)\((\w+)", path.read_text(), re.MULTILINE):
            found[name] = found.get(base, "")
    return found


CLASSES = classes()


def recipe_of(value: dict[str, Any], recipe: str | None) -> str | None:
    """Return the recipe that an object names, else the recipe of the object around it."""
    for key in ("recipe", "method", "experiment", "variant"):
        named = value.get(key)
        while isinstance(named, str) and named:
            name = CLASSES.get(named, named.split("/")[0])
            if name in NAMES["recipes"]:
                return name
            named = named.rpartition("-")[0]  # a variant, such as dim-jsd
    return recipe


def migrate(value: Any, recipe: str | None, holders: set[str], in_settings: bool = False) -> Any:
    """Return a value with renamed settings. `holders` are the keys of objects that hold settings."""
    if isinstance(value, list):
        return [migrate(part, recipe, holders, in_settings) for part in value]
    if not isinstance(value, dict):
        return value
    recipe = recipe_of(value, recipe)
    found = {}
    for key, part in value.items():
        section = SECTIONS.get(key) if isinstance(part, dict) and {"hyper", "run"} <= value.keys() else None
        new = section or (new_name(key, recipe) if in_settings and not isinstance(part, dict) else key)
        new = "temperature" if (key == "tau" and "k_asked" in value) or (key == "tau" and {"checkpoint", "split"} <= value.keys()) else new
        inner = CLASSES.get(key, key.split("/")[0])
        found[new] = migrate(part, inner if inner in NAMES["recipes"] else recipe, holders, in_settings or new in holders)
    return found


def new_name(key: str, recipe: str | None) -> str:
    """Return the new name of a setting."""
    fields = NAMES["recipes"].get(recipe or "", {})
    if key in fields:
        return fields[key]
    if key in NAMES["settings"]:
        return NAMES["settings"][key]
    if key in SHARED:
        return next(names[key] for names in NAMES["recipes"].values() if key in names)
    return key


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with code 1 if a file has old names")
    args = parser.parse_args()
    old = 0
    for path in sorted(RESULTS.rglob("*.json")):
        before = json.loads(path.read_text())
        name = path.relative_to(RESULTS).with_suffix("").as_posix()
        after = migrate(before, RECIPE_OF_FILE.get(name), HOLDERS - {"settings"} if name in OWN_SETTINGS else HOLDERS)
        if after != before:
            old += 1
            print(f"{path.relative_to(ROOT)}: old names")
            if not args.check:
                path.write_text(json.dumps(after, indent=1) + "\n")
    return 1 if args.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
