"""Losses: functions of a score table (one value a row) or of embeddings (a scalar). One idea a file."""

from nearfar.losses.barlow import barlow
from nearfar.losses.byol import byol
from nearfar.losses.clip import clip
from nearfar.losses.debiased import debiased, hard_negative
from nearfar.losses.info_nce import info_nce, info_nce_in, info_nce_of
from nearfar.losses.n_pair import n_pair
from nearfar.losses.nt_xent import nt_xent
from nearfar.losses.sigmoid import nt_logistic, sigmoid
from nearfar.losses.soft_nearest_neighbours import soft_nearest_neighbours
from nearfar.losses.sphere import alignment, uniformity
from nearfar.losses.supcon import supcon

__all__ = [
    "alignment", "barlow", "byol", "clip", "debiased", "hard_negative", "info_nce", "info_nce_in", "info_nce_of", "n_pair",
    "nt_logistic", "nt_xent", "sigmoid", "soft_nearest_neighbours", "supcon", "uniformity",
]  # fmt: skip
