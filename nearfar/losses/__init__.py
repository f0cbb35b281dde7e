"""Loss functions and selections of candidates.

A loss takes a score table and returns one value for each row, or takes embeddings and returns a scalar. Each
module holds one idea.
"""

from nearfar.losses.align_uniform import align_uniform
from nearfar.losses.amdim import amdim, local_global_info_nce
from nearfar.losses.barlow_twins import barlow_twins
from nearfar.losses.batch_triplet import batch_all, batch_hard, batch_hard_soft_margin, semi_hard_triplet, sum_triplet_hinges
from nearfar.losses.byol import byol
from nearfar.losses.candidate_selection import add_negatives, select_negatives, select_positives
from nearfar.losses.clip import clip
from nearfar.losses.consistency import cutoff_consistency, js_divergence, uda
from nearfar.losses.contrastive_pair import build_pair_scores, contrastive_pair, contrastive_pair_squared
from nearfar.losses.cpc import cpc
from nearfar.losses.crd import crd
from nearfar.losses.debiased import debiased, hard_negative
from nearfar.losses.deepcluster import deepcluster
from nearfar.losses.dpr import dpr
from nearfar.losses.flow_nll import flow_nll
from nearfar.losses.hard_batches import build_hard_batch, draw_positive_pairs
from nearfar.losses.hinge import energy_hinge, lmnn, nt_margin, ranking_hinge, translation_hinge
from nearfar.losses.hypersphere import alignment, uniformity
from nearfar.losses.info_nce import info_nce, info_nce_from_statistics, mil_nce
from nearfar.losses.instance_nce import estimate_log_partition, instance_nce
from nearfar.losses.invariant_spreading import spreading
from nearfar.losses.lifted_structure import lifted_structure, lifted_structure_generalized, lifted_structure_smooth
from nearfar.losses.local_aggregation import local_aggregation
from nearfar.losses.loss_blending import blend_losses
from nearfar.losses.loss_reduction import mean_over_rows_with_positives
from nearfar.losses.lre import lre
from nearfar.losses.margin_based import margin_based
from nearfar.losses.mining import (
    draw_distance_weighted_negatives,
    draw_random_negatives,
    mine_hardest_negatives,
    mine_nearest_positives,
    mine_semi_hard_negatives,
)
from nearfar.losses.mlm import mlm
from nearfar.losses.mutual_information import becker_hinton, dv_bound, info_nce_bound, interpolated_bound, jsd_bound, nwj_bound, tuba_bound
from nearfar.losses.n_pair import n_pair
from nearfar.losses.nce import binary_nce, build_log_ratio_scores, logistic_pair, nce, negative_sampling, ranking_nce
from nearfar.losses.negative_mixing import mix_negatives, mix_query
from nearfar.losses.nt_xent import nt_xent
from nearfar.losses.penalty import norm_penalty, proximal_penalty
from nearfar.losses.proto_nce import Clustering, estimate_concentrations, proto_nce
from nearfar.losses.quick_thought import quick_thought
from nearfar.losses.sentence_bert import build_sbert_features, sbert_regression, sbert_softmax
from nearfar.losses.sigmoid import nt_logistic, sigmoid
from nearfar.losses.simcse import simcse, simcse_supervised
from nearfar.losses.soft_nearest_neighbors import soft_nearest_neighbors
from nearfar.losses.softmax import build_class_scores, cross_entropy, instance_softmax, parametric_softmax
from nearfar.losses.supcon import supcon
from nearfar.losses.swav import sinkhorn, swapped_prediction, swav
from nearfar.losses.triple_corruption import corrupt_triples
from nearfar.losses.triplet import triplet, triplet_ratio
from nearfar.losses.w_mse import w_mse, whiten

__all__ = [
    "Clustering",
    "add_negatives",
    "align_uniform",
    "alignment",
    "amdim",
    "barlow_twins",
    "batch_all",
    "batch_hard",
    "batch_hard_soft_margin",
    "becker_hinton",
    "binary_nce",
    "blend_losses",
    "build_class_scores",
    "build_hard_batch",
    "build_log_ratio_scores",
    "build_pair_scores",
    "build_sbert_features",
    "byol",
    "clip",
    "contrastive_pair",
    "contrastive_pair_squared",
    "corrupt_triples",
    "cpc",
    "crd",
    "cross_entropy",
    "cutoff_consistency",
    "debiased",
    "deepcluster",
    "dpr",
    "draw_distance_weighted_negatives",
    "draw_positive_pairs",
    "draw_random_negatives",
    "dv_bound",
    "energy_hinge",
    "estimate_concentrations",
    "estimate_log_partition",
    "flow_nll",
    "hard_negative",
    "info_nce",
    "info_nce_bound",
    "info_nce_from_statistics",
    "instance_nce",
    "instance_softmax",
    "interpolated_bound",
    "js_divergence",
    "jsd_bound",
    "lifted_structure",
    "lifted_structure_generalized",
    "lifted_structure_smooth",
    "lmnn",
    "local_aggregation",
    "local_global_info_nce",
    "logistic_pair",
    "lre",
    "margin_based",
    "mean_over_rows_with_positives",
    "mil_nce",
    "mine_hardest_negatives",
    "mine_nearest_positives",
    "mine_semi_hard_negatives",
    "mix_negatives",
    "mix_query",
    "mlm",
    "n_pair",
    "nce",
    "negative_sampling",
    "norm_penalty",
    "nt_logistic",
    "nt_margin",
    "nt_xent",
    "nwj_bound",
    "parametric_softmax",
    "proto_nce",
    "proximal_penalty",
    "quick_thought",
    "ranking_hinge",
    "ranking_nce",
    "sbert_regression",
    "sbert_softmax",
    "select_negatives",
    "select_positives",
    "semi_hard_triplet",
    "sigmoid",
    "simcse",
    "simcse_supervised",
    "sinkhorn",
    "soft_nearest_neighbors",
    "spreading",
    "sum_triplet_hinges",
    "supcon",
    "swapped_prediction",
    "swav",
    "translation_hinge",
    "triplet",
    "triplet_ratio",
    "tuba_bound",
    "uda",
    "uniformity",
    "w_mse",
    "whiten",
]
