"""The score table, its row statistics, and the primitive that computes them in blocks, exactly, over any number of ranks."""

from nearfar.core.ranks import gather_with_gradient
from nearfar.core.sharing import shared_over_ranks
from nearfar.scores.build import labelled, listed, matched, pairs, views
from nearfar.scores.critics import ConcatCritic, CrossCritic, SeparableCritic, Temperature, manhattan, order, rbf, riesz
from nearfar.scores.rowmap import rowmap
from nearfar.scores.score import (
    Number,
    Scalar,
    Score,
    as_score,
    bilinear,
    cosine,
    dot,
    euclidean,
    learned,
    squared_euclidean,
    unit,
    unit_dot,
)
from nearfar.scores.statistics import Statistic, log_add_exp, log_sum_exp
from nearfar.scores.table import Scores

__all__ = [
    "ConcatCritic",
    "CrossCritic",
    "Number",
    "Scalar",
    "Score",
    "Scores",
    "SeparableCritic",
    "Statistic",
    "Temperature",
    "as_score",
    "bilinear",
    "cosine",
    "dot",
    "euclidean",
    "gather_with_gradient",
    "labelled",
    "learned",
    "listed",
    "log_add_exp",
    "log_sum_exp",
    "manhattan",
    "matched",
    "order",
    "pairs",
    "rbf",
    "riesz",
    "rowmap",
    "shared_over_ranks",
    "squared_euclidean",
    "unit",
    "unit_dot",
    "views",
]
