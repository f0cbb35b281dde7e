"""How good is a representation: probes, neighbours, few labels, geometry, maps, and the table that compares them."""

from nearfar.evaluate.baselines import Features, compare, raw_pixels
from nearfar.evaluate.few_labels import FewLabels, few_labels
from nearfar.evaluate.geometry import effective_rank, spectrum, spread
from nearfar.evaluate.knn import Knn, knn, nearest
from nearfar.evaluate.online_probe import OnlineProbe
from nearfar.evaluate.plane_map import Map, project
from nearfar.evaluate.probe import Linear, Probe, chosen_penalty, fit_linear, linear_probe
from nearfar.evaluate.result_table import Table

__all__ = [
    "Features", "FewLabels", "Knn", "Linear", "Map", "OnlineProbe", "Probe", "Table", "chosen_penalty", "compare", "effective_rank",
    "few_labels", "fit_linear", "knn", "linear_probe", "nearest", "project", "raw_pixels", "spectrum", "spread",
]  # fmt: skip
