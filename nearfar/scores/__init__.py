"""Score tables and their row statistics.

`rowmap` computes statistics in blocks of rows, exactly, over any number of ranks.
"""

from nearfar.core.rank_sharing import shared_over_ranks
from nearfar.core.ranks import gather_with_gradient
from nearfar.scores.constructors import ScoreLike
from nearfar.scores.critics import ConcatCritic, CrossCritic, SeparableCritic, Temperature, manhattan, order_embedding, rbf, riesz
from nearfar.scores.rowmap import rowmap
from nearfar.scores.score import (
    Number,
    Scalar,
    Score,
    as_score,
    bilinear,
    build_learned_score,
    cosine,
    dot,
    euclidean,
    l2_normalize,
    squared_euclidean,
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
    "ScoreLike",
    "Scores",
    "SeparableCritic",
    "Statistic",
    "Temperature",
    "as_score",
    "bilinear",
    "build_learned_score",
    "cosine",
    "dot",
    "euclidean",
    "gather_with_gradient",
    "l2_normalize",
    "log_add_exp",
    "log_sum_exp",
    "manhattan",
    "order_embedding",
    "rbf",
    "riesz",
    "rowmap",
    "shared_over_ranks",
    "squared_euclidean",
    "unit_dot",
]
