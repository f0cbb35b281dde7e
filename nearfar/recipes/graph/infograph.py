r"""InfoGraph: match each graph with its own nodes, against the nodes of other graphs.

Claim: whole graphs are represented without labels by maximizing the mutual information between a graph and
its substructures of every size. The result is better than graph kernels that count such substructures.

$$\hat I_{\phi, \psi}(h_\phi^u, H_\phi(G)) = \mathbb{E}_{\mathbb P}\big[-\operatorname{sp}(-T_\psi(h_\phi^u(x), H_\phi(x)))\big]
- \mathbb{E}_{\mathbb P \times \tilde{\mathbb P}}\big[\operatorname{sp}(T_\psi(h_\phi^u(x'), H_\phi(x)))\big],
\qquad H_\phi(G) = \sum_{u \in G} h_\phi^u, \quad h_\phi^u = [h_u^{(1)}; \dots; h_u^{(K)}]$$

The vector of a node u describes its neighborhoods of 1 to K steps: it concatenates all layers of the encoder.

Shapes: packed graphs -> h (nodes, K width) -> local (nodes, K width), graph (n, K width) -> scores (nodes,
n).

Requirements: many graphs, with labels or attributes of the nodes if available. --batch-size counts graphs.

Relations: DGI for many graphs: the other graphs of the batch are the negatives, and no graph is corrupted.
Deep InfoMax's local objective, with a sum in place of its global features. The critic is a dot product of two
heads.

Reference: Sun, Hoffmann, Verma & Tang, "InfoGraph: Unsupervised and Semi-supervised Graph-Level
Representation Learning via Mutual Information Maximization", ICLR 2020, arXiv:1908.01000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.graphs import sum_nodes
from nearfar.losses import jsd_bound
from nearfar.scores import Scores
from nearfar.similarity.graphs import GraphNodePairs


class ResidualHead(nn.Module):
    """Head of three layers with a linear skip connection of the same width."""

    def __init__(self, dim: int):
        super().__init__()
        self.steep = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(dim, dim), nn.ReLU())))
        self.flat = nn.Linear(dim, dim)

    def forward(self, h: Tensor) -> Tensor:
        return self.steep(h) + self.flat(h)


@dataclass(frozen=True)
class InfoGraph(Recipe):
    """Unsupervised graph-level representations by maximizing mutual information."""

    card = Card(
        title="InfoGraph",
        paper="arXiv:1908.01000",
        year=2020,
        modality="graphs",
        similarity="context-instance",
        query="node with its neighborhoods",
        positive="its own graph",
        negative="the batch's other graphs",
        encoder="GIN, all layers, end to end",
        head="sum over nodes; three layers beside a linear map, for nodes and for graphs",
        score="dot product",
        loss="Jensen-Shannon bound",
        equation=r"\mathbb{E}_{u \in G} \operatorname{sp}(-T(h^u, H(G))) + \mathbb{E}_{u \notin G} \operatorname{sp}(T(h^u, H(G)))",
        family="mutual information",
        similarity_type=("context-instance",),
        head_type=("projection", "contextualization"),
    )

    def similarity(self, net: Net) -> GraphNodePairs:
        return GraphNodePairs()

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, local=ResidualHead(encoder.dim), graph=ResidualHead(encoder.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        h = net.encoder(x)
        return {"local": net.local(h), "graph": net.graph(sum_nodes(h, x["size"])), "of": x["slot"][x["graph"]], "id": x["slot"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return -jsd_bound(Scores(z["local"], z["graph"], row_id=z["of"], col_id=z["id"]))

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return sum_nodes(getattr(net, tower)(x), x["size"])


paper = (
    InfoGraph(),
    TrainConfig(
        data="MUTAG", encoder="gin-3x32", batch_size=128, epochs=20, lr=0.01, weight_decay=0.0, schedule="constant", warmup_ratio=0.0
    ),
)

reported = {
    "MUTAG accuracy, 10 folds, SVM": (89.01, "arXiv:1908.01000, table 1"),
    "IMDB-BINARY accuracy, 10 folds, SVM": (73.03, "arXiv:1908.01000, table 1"),
}

tiny = (
    InfoGraph(),
    TrainConfig(data="atlas", encoder="gin-3x16", batch_size=64, steps=200, lr=2e-3, weight_decay=0.0),
)
