"""Core types: random keys, plans, rows, similarities, nets, recipes, cards and configs.

Names are imported when first used: `nearfar list` and `--help` need cards, configs and errors, but not torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearfar.core.card import Card
    from nearfar.core.configs import RuntimeConfig, TrainConfig
    from nearfar.core.errors import DataError, MissingExtra, NearfarError, UsageError
    from nearfar.core.net import Ema, MemoryBank, Net, Queue
    from nearfar.core.plan import Plan, Rows
    from nearfar.core.random_key import RandomKey
    from nearfar.core.recipe import Embeddings, RawBatch, Recipe, Similarity, Sizes, Views

__all__ = [
    "Card",
    "DataError",
    "Ema",
    "Embeddings",
    "MemoryBank",
    "MissingExtra",
    "NearfarError",
    "Net",
    "Plan",
    "Queue",
    "RandomKey",
    "RawBatch",
    "Recipe",
    "Rows",
    "RuntimeConfig",
    "Similarity",
    "Sizes",
    "TrainConfig",
    "UsageError",
    "Views",
]  # fmt: skip

_WHERE = {
    "Card": "nearfar.core.card",
    **dict.fromkeys(["RuntimeConfig", "TrainConfig"], "nearfar.core.configs"),
    **dict.fromkeys(["DataError", "MissingExtra", "NearfarError", "UsageError"], "nearfar.core.errors"),
    **dict.fromkeys(["Ema", "MemoryBank", "Net", "Queue"], "nearfar.core.net"),
    **dict.fromkeys(["Plan", "Rows"], "nearfar.core.plan"),
    "RandomKey": "nearfar.core.random_key",
    **dict.fromkeys(["Embeddings", "RawBatch", "Recipe", "Similarity", "Sizes", "Views"], "nearfar.core.recipe"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'nearfar.core' has no attribute {name!r}")
    found = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = found
    return found
