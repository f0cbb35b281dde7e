r"""TransE: each relation is a translation from its head entities to its tail entities.

Claim: one vector for each entity and one for each relation are enough to complete a knowledge graph: head
plus relation lies near the tail. Hierarchies, the most common relations, are naturally translations.

$$\mathcal{L} = \sum_{(h, r, t) \in S} \; \sum_{(h', r, t') \in S'_{(h, r, t)}} \big[ \gamma + d(h + r, t) - d(h' + r, t') \big]_+,
\qquad d(x, y) = \lVert x - y \rVert_{1 \text{ or } 2}, \qquad \lVert e \rVert_2 = 1$$

S' holds corrupted triples: true triples in which the head or the tail, but not both, was replaced by a random
entity.

Shapes: head, relation, tail (n,), other (n, k) -> loss (n,); tables (entities, dim) and (relations, dim).

Requirements: triples of names. Use `--optimizer adagrad`, which updates only the rows of a step. After each
step the entities of this step are normalized to unit length. Otherwise growing norms would satisfy any
margin.

Relations: `lre` learns a matrix for each relation, TransE adds a vector. The loss is `translation_hinge`. It
costs one more vector for each corruption: h' + r against t is h' against t - r. One-to-many relations crowd
their tails together. `--corruption bernoulli` (Wang et al. 2014) at least draws fewer false negatives from
them.

Reference: Bordes, Usunier, Garcia-Durán, Weston & Yakhnenko, "Translating Embeddings for Modeling
Multi-relational Data", NIPS 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.lookup import LookupTable
from nearfar.losses.sparse_translation_hinge import sparse_translation_hinge
from nearfar.similarity.triples import CorruptedTriples


@dataclass(frozen=True)
class TransE(Recipe):
    """Translating embeddings for knowledge graphs."""

    card = Card(
        title="TransE",
        paper="NIPS 2013",
        year=2013,
        modality="triples",
        similarity="labels (triples)",
        query="entity + relation",
        positive="the entity that completes the triple",
        negative="a random entity in place of head or tail",
        encoder="look-up table of unit vectors",
        head="addition of the relation's vector",
        score="minus the L1 or L2 distance",
        loss="triplet hinge",
        equation=r"\max(0,\; \gamma + d(h + r, t) - d(h' + r, t'))",
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("relation",),
    )

    limits = {"margin": (0.0, float("inf"))}  # noqa: RUF012

    dim: int = 50
    """Dimension of the vectors."""
    margin: float = 2.0
    """Margin between the distances of true and corrupted triples (gamma in the equation)."""
    distance: Literal["l1", "l2"] = "l1"
    """Distance between head plus relation and tail: l1 or l2."""
    negatives: int = 1
    """Corruptions of each triple (k)."""
    corruption: Literal["uniform", "bernoulli"] = "uniform"
    """Choice of the corrupted end: uniform or bernoulli. bernoulli corrupts the end with more alternatives
    less often."""

    def similarity(self, net: Net) -> CorruptedTriples:
        return CorruptedTriples(len(net.encoder.weight), self.negatives, self.corruption)

    def build(self, sizes: Sizes) -> Net:
        net = Net(encoder=LookupTable(sizes["words"], self.dim), relation=LookupTable(len(sizes["relations"]), self.dim))
        with torch.no_grad():
            for table in (net.encoder.weight, net.relation.weight):
                table.copy_(F.normalize(table.uniform_(-6 / math.sqrt(self.dim), 6 / math.sqrt(self.dim)), dim=1))
        return net

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        who = x["head"], x["relation"], x["tail"], x["other"], x["of_head"]
        loss = sparse_translation_hinge(net.encoder.weight, net.relation.weight, *who, self.margin, self._norm_order)
        return {"loss": loss, "entity": torch.cat([x["head"][:, None], x["tail"][:, None], x["other"]], dim=1)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return z["loss"].mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        moved, table = z["entity"][z["loss"] > 0].reshape(-1), net.encoder.weight
        table.index_copy_(0, moved, F.normalize(table.index_select(0, moved), dim=1))

    @property
    def _norm_order(self) -> int:
        return 1 if self.distance == "l1" else 2

    def score(self, net: Net, triples: Tensor, side: int) -> Tensor:
        """Score every entity as the missing end of each triple: minus the distance.

        Args:
            triples: head, relation and tail ids (m, 3).
            side: the missing end, 0 for the head, 2 for the tail.

        Returns:
            Scores (m, entities); higher is better.
        """
        table, (h, r, t) = net.encoder.weight, triples.T
        given = table[t] - net.relation(r) if side == 0 else table[h] + net.relation(r)
        return -torch.cdist(given, table, p=float(self._norm_order))


paper = (
    TransE(dim=20, margin=2.0, distance="l1"),
    TrainConfig(
        data="WN18",
        batch_size=1414,
        epochs=1000,
        optimizer="sgd",
        momentum=0.0,
        lr=0.01,
        weight_decay=0.0,
        schedule="constant",
        warmup_ratio=0.0,
    ),
)

reported: dict[str, Any] = {
    "WN18, filtered hits@10": (89.2, "NIPS 2013, table 3"),
    "FB15k, filtered hits@10": (47.1, "NIPS 2013, table 3"),
}

tiny = (
    TransE(dim=32),
    TrainConfig(data="python", batch_size=256, steps=600, optimizer="adagrad", lr=0.1, schedule="constant", warmup_ratio=0.0),
)
