"""Evaluation of representations: probes, neighbors, few labels, geometry, maps and result tables."""

from nearfar.evaluate.feature_comparison import Features, build_pixel_baselines, compare_features
from nearfar.evaluate.few_labels import FewLabelsResult, few_label_probe
from nearfar.evaluate.geometry import effective_rank, spectrum, spread
from nearfar.evaluate.knn import KnnResult, find_nearest_neighbors, knn
from nearfar.evaluate.online_probe import OnlineProbe
from nearfar.evaluate.probe import LinearClassifier, ProbeResult, choose_penalty, fit_linear, linear_probe
from nearfar.evaluate.projection_2d import Projection2D, project_to_2d
from nearfar.evaluate.result_table import ResultTable

__all__ = [
    "Features",
    "FewLabelsResult",
    "KnnResult",
    "LinearClassifier",
    "OnlineProbe",
    "ProbeResult",
    "Projection2D",
    "ResultTable",
    "build_pixel_baselines",
    "choose_penalty",
    "compare_features",
    "effective_rank",
    "few_label_probe",
    "find_nearest_neighbors",
    "fit_linear",
    "knn",
    "linear_probe",
    "project_to_2d",
    "spectrum",
    "spread",
]  # fmt: skip
