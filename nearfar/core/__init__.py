"""The vocabulary: keys, plans, rows, similarities, nets, recipes, cards, runs."""

from nearfar.core.card import Card
from nearfar.core.errors import DataError, MissingExtra, NearfarError, UsageError
from nearfar.core.keys import Key
from nearfar.core.net import Bank, Ema, Net, Queue
from nearfar.core.plan import Plan, Rows
from nearfar.core.recipe import Embedded, Raw, Recipe, Similarity, Sizes, Views
from nearfar.core.run import Machine, Run

__all__ = [
    "Bank", "Card", "DataError", "Ema", "Embedded", "Key", "Machine", "MissingExtra", "NearfarError", "Net", "Plan", "Queue",
    "Raw", "Recipe", "Rows", "Run", "Similarity", "Sizes", "UsageError", "Views",
]  # fmt: skip
