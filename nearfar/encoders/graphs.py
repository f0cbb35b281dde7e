r"""Graph convolutions: encoders of nodes and graphs.

The representation of a node is computed from its own features and its neighbors' features.

The encoders take graphs packed end to end, as `nearfar.data.graphs.dataset` reads them: {"x": features,
"links": \(\hat A\)}. The features may be a sparse matrix with its transpose. The time of a product then grows
with the number of its entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoders.family import EncoderBuilder, EncoderFamily
from nearfar.encoders.graph_diffusion import GraphDiffusion
from nearfar.encoders.sparse_products import CSRArrays, multiply


class GraphEncoder(nn.Module, ABC):
    """Encoder of packed graphs: one row of width `dim` for each node.

    It has two parts, `project` and `convolve`, so that features can be swapped between them:
    (P X) W = P (X W).
    """

    dim: int

    def forward(self, graph: Mapping[str, Any]) -> Float[Tensor, "nodes d"]:
        return self.convolve(self.project(graph["x"]), graph["links"])

    @abstractmethod
    def project(self, x: Any) -> Float[Tensor, "nodes w"]:
        """Multiply the features by the first layer's weights.

        This part does not use the links.
        """

    @abstractmethod
    def convolve(self, h: Float[Tensor, "nodes w"], links: CSRArrays) -> Float[Tensor, "nodes d"]:
        """Compute the node representations from the projected features and the links."""


class GCN(GraphEncoder):
    r"""Graph convolutional network.

    \(H^{(l+1)} = \operatorname{PReLU}(\hat A H^{(l)} W^{(l)} + b^{(l)})\), with \(\hat A\) normalized
    symmetrically, or with its diffusion.

    Reference: Kipf, Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017.
    """

    def __init__(self, num_features: int, width: int, num_layers: int):
        super().__init__()
        self.dim = width
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(d, width)) for d in (num_features, *[width] * (num_layers - 1)))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(num_layers))
        self.slopes = nn.ModuleList(nn.PReLU() for _ in range(num_layers))

    def project(self, x: Any) -> Float[Tensor, "nodes w"]:
        return _times(x, self.weights[0])

    def convolve(self, h: Float[Tensor, "nodes w"], links: CSRArrays | GraphDiffusion) -> Float[Tensor, "nodes d"]:
        for layer, (weight, bias, slope) in enumerate(zip(self.weights, self.biases, self.slopes, strict=True)):
            h = h @ weight if layer else h
            h = slope((links(h) if isinstance(links, GraphDiffusion) else multiply(links, links, h)) + bias)
        return h


class GIN(GraphEncoder):
    r"""Graph isomorphism network.

    \[ h_i^{(l+1)} = \operatorname{norm} \operatorname{ReLU} \operatorname{MLP}^{(l)}
       \big(h_i^{(l)} + \sum_{j \in N(i)} h_j^{(l)}\big) \]

    The representation of a node concatenates all its layers, so that it describes small and large
    neighborhoods. The first layer of the MLP is applied before the sum over neighbors. Both are linear, so
    the result is the same.

    Reference: Xu, Hu, Leskovec, Jegelka, How Powerful are Graph Neural Networks?, ICLR 2019 (GIN-0).
    """

    def __init__(self, num_features: int, width: int, num_layers: int, norm: type[nn.Module] = nn.BatchNorm1d):
        super().__init__()
        self.dim = num_layers * width
        self.first = nn.ModuleList(nn.Linear(d, width) for d in (num_features, *[width] * (num_layers - 1)))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.norms = nn.ModuleList(norm(width) for _ in range(num_layers))

    def project(self, x: Any) -> Float[Tensor, "nodes w"]:
        first: Any = self.first[0]
        return _times(x, first.weight.T)

    def convolve(self, h: Float[Tensor, "nodes w"], links: CSRArrays) -> Float[Tensor, "nodes d"]:
        begins, columns, weights = links
        links = (begins, columns, torch.ones_like(weights))
        found: list[Tensor] = []
        first: Any
        for layer, (first, second, norm) in enumerate(zip(self.first, self.second, self.norms, strict=True)):
            h = h @ first.weight.T if layer else h
            h = norm(second((multiply(links, links, h) + first.bias).relu()).relu())
            found.append(h)
        return torch.cat(found, 1)


def sum_nodes(h: Float[Tensor, "nodes d"], graph_sizes: Tensor) -> Float[Tensor, "n d"]:
    """Sum the rows of each graph's nodes.

    The graphs are packed end to end. The sizes are checked, which prevents a step that uses this function
    from being recorded as a CUDA graph. Such a step must not be recorded, because its shapes differ from
    batch to batch.

    Args:
        h: rows of all nodes, (nodes, d).
        graph_sizes: number of nodes of each graph, (n,).

    Returns:
        One row for each graph, (n, d).
    """
    return torch.segment_reduce(h, "sum", lengths=graph_sizes)


def _times(x: Any, weight: Tensor) -> Tensor:
    """Return x @ weight.

    x is dense, or a sparse matrix followed by its transpose.
    """
    return x @ weight if isinstance(x, Tensor) else multiply(x[:3], x[3:], weight)


GRAPH_ENCODERS: dict[str, EncoderBuilder] = {
    "gcn-LAYERSxWIDTH": lambda sizes, layers, width: GCN(sizes["node_features"], width, layers),
    "gin-LAYERSxWIDTH": lambda sizes, layers, width: GIN(sizes["node_features"], width, layers),
    "gin-LAYERSxWIDTH-ln": lambda sizes, layers, width: GIN(sizes["node_features"], width, layers, nn.LayerNorm),
}
"""Graph encoders by name. Names that end in -ln use layer norm instead of batch norm."""
GRAPH_FAMILY = EncoderFamily(
    modality_name="graphs",
    size_field="node_features",
    builders=GRAPH_ENCODERS,
    choose_default=lambda sizes: "gcn-1x512" if "nodes" in sizes else "gin-3x32",
    example_spec="gcn-1x512 or gin-3x32",
)
