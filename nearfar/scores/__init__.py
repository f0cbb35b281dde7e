"""The score table, its row statistics, and the primitive that computes them in blocks, exactly, over any number of ranks."""

from nearfar.scores.build import labelled, listed, matched, pairs, views
from nearfar.scores.rowmap import rowmap
from nearfar.scores.score import Number, Scalar, Score, as_score, bilinear, cosine, dot, euclidean, learned, squared_euclidean, unit
from nearfar.scores.statistics import Statistic, log_add_exp, log_sum_exp
from nearfar.scores.table import Scores

__all__ = [
    "Number", "Scalar", "Score", "Scores", "Statistic", "as_score", "bilinear", "cosine", "dot", "euclidean", "labelled", "learned",
    "listed", "log_add_exp", "log_sum_exp", "matched", "pairs", "rowmap", "squared_euclidean", "unit", "views",
]  # fmt: skip
