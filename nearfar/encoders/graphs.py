r"""Graph convolutions: a node's representation is made from its own features and its neighbours'.

They take graphs packed end to end, as `nearfar.data.graphs.dataset` reads them: {"x": features, "links": \(\hat A\)}. The features may be a
sparse matrix, with its transpose: products then take as long as it has entries.
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
    """From packed graphs to a row a node, `dim` wide; in two halves, so that features can be swapped in between: (P X) W = P (X W)."""

    dim: int

    def forward(self, graph: Mapping[str, Any]) -> Float[Tensor, "nodes d"]:
        return self.convolve(self.project(graph["x"]), graph["links"])

    @abstractmethod
    def project(self, x: Any) -> Float[Tensor, "nodes w"]:
        """The first layer's product with the features, which does not see the links."""

    @abstractmethod
    def convolve(self, h: Float[Tensor, "nodes w"], links: CSRArrays) -> Float[Tensor, "nodes d"]:
        """Everything after it."""


class GCN(GraphEncoder):
    r"""\(H^{(l+1)} = \operatorname{PReLU}(\hat A H^{(l)} W^{(l)} + b^{(l)})\), with \(\hat A\) normalised symmetrically, or its diffusion.

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
    r"""\(h_i^{(l+1)} = \operatorname{norm} \operatorname{ReLU} \operatorname{MLP}^{(l)}\big(h_i^{(l)} + \sum_{j \in N(i)} h_j^{(l)}\big)\);
    a node is represented by all its layers, one after another: small neighbourhoods and large ones.

    The MLP's first layer is taken before the sum over neighbours: both are linear.

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
    """The sum over each graph's nodes, which stand end to end. Sizes are checked, so that a step that uses it is never recorded as a
    CUDA graph: its shapes differ from batch to batch."""
    return torch.segment_reduce(h, "sum", lengths=graph_sizes)


def _times(x: Any, weight: Tensor) -> Tensor:
    """x @ weight; x dense, or a sparse matrix followed by its transpose."""
    return x @ weight if isinstance(x, Tensor) else multiply(x[:3], x[3:], weight)


GRAPH_ENCODERS: dict[str, EncoderBuilder] = {
    "gcn-LAYERSxWIDTH": lambda sizes, layers, width: GCN(sizes["node_features"], width, layers),
    "gin-LAYERSxWIDTH": lambda sizes, layers, width: GIN(sizes["node_features"], width, layers),
    "gin-LAYERSxWIDTH-ln": lambda sizes, layers, width: GIN(sizes["node_features"], width, layers, nn.LayerNorm),
}
"""With -ln: layer instead of batch norm."""
GRAPH_FAMILY = EncoderFamily(
    modality_name="graphs",
    size_field="node_features",
    builders=GRAPH_ENCODERS,
    choose_default=lambda sizes: "gcn-1x512" if "nodes" in sizes else "gin-3x32",
    example_spec="gcn-1x512 or gin-3x32",
)
