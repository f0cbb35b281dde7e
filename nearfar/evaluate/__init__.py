"""How good is a representation: probes, neighbours, few labels, geometry, maps, and the table that compares them."""

from nearfar.evaluate.compare import Features, compare, raw_pixels
from nearfar.evaluate.few import FewLabels, few_labels
from nearfar.evaluate.geometry import effective_rank, spectrum, spread
from nearfar.evaluate.knn import Knn, knn, nearest
from nearfar.evaluate.online import OnlineProbe
from nearfar.evaluate.probe import Linear, Probe, chosen_penalty, fit_linear, linear_probe
from nearfar.evaluate.projection import Map, project
from nearfar.evaluate.table import Table

__all__ = [
    "Features", "FewLabels", "Knn", "Linear", "Map", "OnlineProbe", "Probe", "Table", "chosen_penalty", "compare", "effective_rank",
    "few_labels", "fit_linear", "knn", "linear_probe", "nearest", "project", "raw_pixels", "spectrum", "spread",
]  # fmt: skip
