"""Losses: functions of a score table (one value a row) or of embeddings (a scalar), and selections of negatives. One idea a file."""

from nearfar.losses.align_uniform import align_uniform
from nearfar.losses.barlow_twins import barlow
from nearfar.losses.batch_triplet import batch_all, batch_hard, batch_hard_soft, semi_hard, triplet_sums
from nearfar.losses.byol import byol
from nearfar.losses.clip import clip
from nearfar.losses.consistency import cutoff, js_divergence, uda
from nearfar.losses.corrupt import corrupt
from nearfar.losses.cpc import cpc
from nearfar.losses.crd import crd
from nearfar.losses.debiased import debiased, hard_negative
from nearfar.losses.deepcluster import deepcluster
from nearfar.losses.dpr import dpr
from nearfar.losses.flow import flow_nll
from nearfar.losses.hard_batches import hard_batch, positive_pairs
from nearfar.losses.hinge import energy_hinge, lmnn, nt_margin, ranking, translation_hinge
from nearfar.losses.hybrid import hybrid
from nearfar.losses.info_nce import info_nce, info_nce_in, info_nce_of
from nearfar.losses.instance import instance_nce, log_partition
from nearfar.losses.invariant_spreading import spreading
from nearfar.losses.lifted import lifted, lifted_generalised, lifted_smooth
from nearfar.losses.local_aggregation import local_aggregation
from nearfar.losses.lre import lre
from nearfar.losses.margin import margin_based
from nearfar.losses.mining import distance_weighted_negatives, hardest_negatives, nearest_positives, random_negatives, semi_hard_negatives
from nearfar.losses.mixing import mix_negatives, mix_query
from nearfar.losses.mlm import mlm
from nearfar.losses.multiscale import local_global, multiscale
from nearfar.losses.mutual_information import becker_hinton, dv_bound, info_nce_bound, interpolated_bound, jsd_bound, nwj_bound, tuba_bound
from nearfar.losses.n_pair import n_pair
from nearfar.losses.nce import binary_nce, log_ratios, logistic, nce, negative_sampling, ranking_nce
from nearfar.losses.negatives import only_negatives, only_positives, with_negatives
from nearfar.losses.nt_xent import nt_xent
from nearfar.losses.pair import judged, pair, pair_of_squares
from nearfar.losses.penalty import norm_penalty, proximal
from nearfar.losses.proto_nce import Clustering, concentration, proto_nce
from nearfar.losses.quick_thought import quick_thought
from nearfar.losses.reduction import mean_over_rows_with_positives
from nearfar.losses.sentence_bert import sbert_features, sbert_regression, sbert_softmax
from nearfar.losses.sigmoid import nt_logistic, sigmoid
from nearfar.losses.simcse import simcse, simcse_supervised
from nearfar.losses.soft_nearest_neighbors import soft_nearest_neighbours
from nearfar.losses.softmax import classes, cross_entropy, instance_softmax, parametric_softmax
from nearfar.losses.sphere import alignment, uniformity
from nearfar.losses.supcon import supcon
from nearfar.losses.swav import sinkhorn, swapped_prediction, swav
from nearfar.losses.triplet import triplet, triplet_ratio
from nearfar.losses.w_mse import w_mse, whiten

__all__ = [
    "Clustering",
    "align_uniform",
    "alignment",
    "barlow",
    "batch_all",
    "batch_hard",
    "batch_hard_soft",
    "becker_hinton",
    "binary_nce",
    "byol",
    "classes",
    "clip",
    "concentration",
    "corrupt",
    "cpc",
    "crd",
    "cross_entropy",
    "cutoff",
    "debiased",
    "deepcluster",
    "distance_weighted_negatives",
    "dpr",
    "dv_bound",
    "energy_hinge",
    "flow_nll",
    "hard_batch",
    "hard_negative",
    "hardest_negatives",
    "hybrid",
    "info_nce",
    "info_nce_bound",
    "info_nce_in",
    "info_nce_of",
    "instance_nce",
    "instance_softmax",
    "interpolated_bound",
    "js_divergence",
    "jsd_bound",
    "judged",
    "lifted",
    "lifted_generalised",
    "lifted_smooth",
    "lmnn",
    "local_aggregation",
    "local_global",
    "log_partition",
    "log_ratios",
    "logistic",
    "lre",
    "margin_based",
    "mean_over_rows_with_positives",
    "mix_negatives",
    "mix_query",
    "mlm",
    "multiscale",
    "n_pair",
    "nce",
    "nearest_positives",
    "negative_sampling",
    "norm_penalty",
    "nt_logistic",
    "nt_margin",
    "nt_xent",
    "nwj_bound",
    "only_negatives",
    "only_positives",
    "pair",
    "pair_of_squares",
    "parametric_softmax",
    "positive_pairs",
    "proto_nce",
    "proximal",
    "quick_thought",
    "random_negatives",
    "ranking",
    "ranking_nce",
    "sbert_features",
    "sbert_regression",
    "sbert_softmax",
    "semi_hard",
    "semi_hard_negatives",
    "sigmoid",
    "simcse",
    "simcse_supervised",
    "sinkhorn",
    "soft_nearest_neighbours",
    "spreading",
    "supcon",
    "swapped_prediction",
    "swav",
    "translation_hinge",
    "triplet",
    "triplet_ratio",
    "triplet_sums",
    "tuba_bound",
    "uda",
    "uniformity",
    "w_mse",
    "whiten",
    "with_negatives",
]
