r"""node2vec: skip-gram on biased random walks, with nodes as words and walks as sentences.

Claim: the notion of neighborhood is a choice. Two parameters bias the walks outward or back. They give
skip-gram neighborhoods between breadth-first (roles) and depth-first (communities). The vectors serve
classification and link prediction alike.

$$\mathcal{L} = -\frac{1}{|\mathcal{P}|} \sum_{(c, o) \in \mathcal{P}} \Big( \log \sigma(u_o^\top v_c)
+ \sum_{j=1}^{k} \mathbb{E}_{\tilde n_j \sim P_n} \log \sigma(-u_{\tilde n_j}^\top v_c) \Big),
\qquad \pi(x \mid v, t) \propto w_{vx} \begin{cases} 1/p & x = t \\ 1 & (t, x) \in E \\ 1/q & \text{else} \end{cases}$$

The pairs P are the nodes of walks that stand within a window of each other. $\pi$ is the probability that a
walk that came from t to v continues to x.

Shapes: word, sentence (m, 32 + 2 window), reach (m, 32), noise (m, shared_negatives) for m tiles -> loss,
count (n,); tables (nodes, dim).

Requirements: an undirected graph, weighted or not. Use `--optimizer adagrad`, which updates only the rows of
a step. A row of the batch is a walk. An epoch draws `walks_per_node` new walks from each node.

Relations: `word2vec-skipgram-neg` on walks instead of text: the same loss and tiles, without subsampling of
frequent nodes. With p = q = 1 the walks are DeepWalk's (which has a hierarchical softmax instead of negative
samples). Walks are drawn by rejection sampling instead of an alias table for each edge, which saves memory.

Reference: Grover & Leskovec, "node2vec: Scalable Feature Learning for Networks", KDD 2016, arXiv:1607.00653.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.lookup import LookupTable
from nearfar.losses.word2vec import skip_gram_neg
from nearfar.similarity.text_windows import sum_groups_per_row
from nearfar.similarity.walks import RandomWalks


@dataclass(frozen=True)
class Node2Vec(Recipe):
    """Skip-gram with negative sampling on biased random walks."""

    card = Card(
        title="node2vec",
        paper="arXiv:1607.00653",
        year=2016,
        modality="walks",
        similarity="sequential coherence",
        query="node of a walk",
        positive="each node of the walk within its window",
        negative="nodes drawn from degree^(3/4), shared by 32 neighboring places of a walk",
        encoder="two look-up tables, one for centers and one for contexts",
        head="none",
        score="dot product",
        loss="NEG",
        equation=r"-\log \sigma(u_o^\top v_c) - \sum_{j=1}^{k} \mathbb{E}_{\tilde n_j \sim P_n} \log \sigma(-u_{\tilde n_j}^\top v_c)",
        family="NCE and softmax",
        similarity_type=("sequential coherence",),
        head_type=("none",),
    )
    limits = {"noise_exponent": (0.0, 1.0), "walk_length": (2.0, float("inf"))}  # noqa: RUF012

    dim: int = 128
    """Dimension of the vectors."""
    walk_length: int = 80
    """Nodes of a walk."""
    walks_per_node: int = 10
    """Walks from each node in an epoch."""
    return_parameter: float = 1.0
    """Return parameter (p in the equation). Smaller values make walks return to the previous node more
    often."""
    in_out_parameter: float = 1.0
    """In-out parameter (q in the equation). Smaller values lead walks further away from the previous node."""
    window: int = 10
    """Largest distance within a walk between a node and its context nodes."""
    negatives: int = 5
    """Weight of the negatives, as a number per positive pair (k in the equation)."""
    noise_exponent: float = 0.75
    """Exponent of the noise distribution: nodes are drawn in proportion to degree ** exponent."""
    shared_negatives: int = 32
    """Number of negatives drawn for each tile of 32 consecutive positions."""

    def similarity(self, net: Net) -> RandomWalks:
        return RandomWalks(
            self.walk_length,
            self.walks_per_node,
            self.return_parameter,
            self.in_out_parameter,
            self.window,
            self.shared_negatives,
            self.noise_exponent,
        )

    def build(self, sizes: Sizes) -> Net:
        return Net(encoder=LookupTable(sizes["words"], self.dim), context=LookupTable(sizes["words"], self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        v, u = net.encoder.weight, net.context.weight
        loss, pairs = skip_gram_neg(v, u, x["word"], x["sentence"], x["reach"], x["noise"], self.negatives)
        return {"loss": sum_groups_per_row(loss, x), "count": sum_groups_per_row(pairs, x)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return z["loss"].sum() / z["count"].detach().sum().clamp_min(1)


paper = (
    Node2Vec(dim=128, walk_length=80, walks_per_node=10, return_parameter=0.25, in_out_parameter=0.25, window=10),
    TrainConfig(data="blogcatalog.mat", batch_size=256, epochs=1, optimizer="adagrad", lr=0.2, warmup_ratio=0.0),
)

reported = {"BlogCatalog, macro-F1, half of the labels": (25.81, "arXiv:1607.00653, table 2")}

tiny = (
    Node2Vec(dim=16, walk_length=20, window=5),
    TrainConfig(data="karate", batch_size=64, steps=100, optimizer="adagrad", lr=0.1, warmup_ratio=0.0),
)
