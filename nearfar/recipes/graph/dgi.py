r"""Deep Graph Infomax: contrast the nodes of a graph with corrupted nodes, given a graph summary.

Claim: node representations that have high mutual information with a summary of the whole graph need no random
walks and no link reconstruction. They rival representations that are learned with labels.

$$\mathcal{L} = -\frac{1}{N + M} \Big( \sum_{i=1}^{N} \mathbb{E} \log \mathcal{D}(\vec h_i, \vec s)
+ \sum_{j=1}^{M} \mathbb{E} \log \big(1 - \mathcal{D}(\tilde h_j, \vec s)\big) \Big),
\qquad \mathcal{D}(\vec h, \vec s) = \sigma(\vec h^\top W \vec s), \quad \vec s = \sigma\Big(\frac1N \sum_i \vec h_i\Big)$$

The nodes of the corrupted graph are $\tilde h$. It has the same links, but the features are shuffled among
the nodes.

Shapes: X (N, f), links (N, N), sparse -> H, corrupted H (N, d), s (1, d) -> scores (1, N) and (1, N).

Requirements: one graph that fits into memory. Use --batch-size 1, because the graph is the only sample.
Training sees the whole graph, including the test nodes, but not their labels (transductive). The summary has
the same dimension as a node: with few dimensions it carries little information, so the encoder is wide (512).

Relations: Deep InfoMax on a graph instead of an image: global against local, with the Jensen-Shannon bound
(this loss is half of it). `infograph` takes its negatives from other graphs and needs no corruption. An
untrained encoder already averages neighbors. On citation graphs it scores far above raw features and is the
right baseline.

Reference: Velickovic, Fedus, Hamilton, Lio, Bengio & Hjelm, "Deep Graph Infomax", ICLR 2019,
arXiv:1809.10341.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.losses import jsd_bound
from nearfar.scores import Scores
from nearfar.similarity.graphs import CorruptedGraph


@dataclass(frozen=True)
class DGI(Recipe):
    """Deep Graph Infomax."""

    card = Card(
        title="Deep Graph Infomax",
        paper="arXiv:1809.10341",
        year=2019,
        modality="nodes",
        similarity="context-instance",
        query="summary of the graph",
        positive="every node with its neighborhood",
        negative="nodes of the corrupted graph, whose features are shuffled",
        encoder="GCN, end to end",
        head="mean over nodes, sigmoid",
        score="bilinear",
        loss="binary NCE (Jensen-Shannon bound)",
        equation=r"-\frac{1}{2N} \sum_i \log \sigma(\vec h_i^\top W \vec s) + \log \sigma(-\tilde h_i^\top W \vec s)",
        family="mutual information",
        similarity_type=("context-instance",),
        head_type=("contextualization",),
    )
    rowwise: ClassVar[bool] = False

    def similarity(self, net: Net) -> CorruptedGraph:
        return CorruptedGraph()

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, W=nn.Parameter(nn.init.xavier_uniform_(torch.empty(encoder.dim, encoder.dim))))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        XW = net.encoder.project(x["x"])
        H = net.encoder.convolve(XW, x["links"])
        corrupted = net.encoder.convolve(XW[x["order"]], x["links"])
        return {"H": H, "corrupted": corrupted, "s": H.mean(0, keepdim=True).sigmoid()}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        Ws = net.W @ z["s"][0]
        return -jsd_bound(Scores.from_lists((z["H"] @ Ws)[None], (z["corrupted"] @ Ws)[None])) / 2

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return getattr(net, tower)(x)[x["node"]]


paper = (
    DGI(),
    TrainConfig(
        data="cora.npz", encoder="gcn-1x512", batch_size=1, steps=250, lr=1e-3, weight_decay=0.0, schedule="constant", warmup_ratio=0.0
    ),
)

reported = {
    "Cora accuracy, public split, mean of 50": (82.3, "arXiv:1809.10341, table 2"),
    "Citeseer accuracy, public split, mean of 50": (71.8, "arXiv:1809.10341, table 2"),
    "Pubmed accuracy, public split, mean of 50": (76.8, "arXiv:1809.10341, table 2"),
}

tiny = (
    DGI(),
    TrainConfig(
        data="karate", encoder="gcn-1x64", batch_size=1, steps=200, lr=5e-3, weight_decay=0.0, schedule="constant", warmup_ratio=0.0
    ),
)
