"""Core types: random keys, plans, rows, similarities, nets, recipes, cards and configs."""

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
