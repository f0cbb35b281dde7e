"""Comparison of a run's config.json with the config in its newest checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from nearfar.core import UsageError
from nearfar.train.checkpoint import Checkpoint
from nearfar.train.run_folder import RunFolder

CHANGEABLE_FIELDS = ("format", "runtime_config", "train_config.data")
"""Parts that may change before a run is resumed: the runtime settings, and the path of the data (their
fingerprint is checked)."""
MISSING_VALUE = "nothing"
logger = logging.getLogger("nearfar")


def check_config(folder: RunFolder, stored_config: Mapping[str, Any], checkpoint: Checkpoint | None, accept_changes: bool = False) -> None:
    """Raise an error if config.json differs from the config in the newest checkpoint.

    Args:
        folder: the run.
        stored_config: content of its config.json.
        checkpoint: its newest checkpoint. None means that there is nothing to compare.
        accept_changes: continue with the values of config.json and log the differences.

    Raises:
        UsageError: if a value differs. The message shows the old and the new value of each difference.
    """
    if checkpoint is None:
        return
    differences = _differences(_plain(checkpoint.manifest["config"]), _plain(stored_config))
    if not differences:
        return
    listed = "; ".join(f"{name}: {old} in the checkpoint, {new} in config.json" for name, (old, new) in differences.items())
    if accept_changes:
        logger.warning("continuing with the changed settings of %s: %s", folder.config_file, listed)
        return
    raise UsageError(
        f"{folder.config_file} is not the config that {checkpoint.folder.name} was trained with: {listed}. "
        "Put the old values back, or add --accept-changes to continue with those of config.json"
    )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the values that differ, by name, as JSON text."""
    names = [*old, *(name for name in new if name not in old)]
    pairs = {name: (old.get(name, MISSING_VALUE), new.get(name, MISSING_VALUE)) for name in names if not _is_free(name)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _is_free(name: str) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in CHANGEABLE_FIELDS)


def _plain(stored_config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested fields to names such as `train_config.lr`, with values as JSON text."""
    found: dict[str, str] = {}
    for name, value in stored_config.items():
        if isinstance(value, Mapping) and value:
            found |= _plain(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = json.dumps(value)
    return found
