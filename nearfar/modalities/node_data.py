"""Base class of the modalities of nodes and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.core.modality import Modality
from nearfar.data.graphs.dataset import Graphs, Nodes


class NodeDataModality(Modality):
    """Nodes or graphs, shown by name and class."""

    def build_sample_renderer(self, data: Nodes | Graphs) -> Callable[[Tensor], Any]:
        return lambda ids: np.array([_describe_sample(data, int(i)) for i in ids.reshape(-1)], dtype=object).reshape(ids.shape).tolist()


def _describe_sample(data: Nodes | Graphs, i: int) -> str:
    return data.name(i) if data.labels is None else f"{data.name(i)}: {data.classes[data.labels[i]]}"
