"""The vocabulary: keys, plans, rows, similarities, nets, recipes, cards, runs."""

from nearfar.core.card import Card
from nearfar.core.configs import Machine, Run
from nearfar.core.errors import DataError, MissingExtra, NearfarError, UsageError
from nearfar.core.net import Bank, Ema, Net, Queue
from nearfar.core.plan import Plan, Rows
from nearfar.core.random_key import Key
from nearfar.core.recipe import Embedded, Raw, Recipe, Similarity, Sizes, Views

__all__ = [
    "Bank", "Card", "DataError", "Ema", "Embedded", "Key", "Machine", "MissingExtra", "NearfarError", "Net", "Plan", "Queue",
    "Raw", "Recipe", "Rows", "Run", "Similarity", "Sizes", "UsageError", "Views",
]  # fmt: skip
