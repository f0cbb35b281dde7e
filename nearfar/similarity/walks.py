"""Similarity of nodes that are close on biased second-order random walks, with windows over the walks."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views
from nearfar.similarity.text_windows import WordWindows

PROPOSALS_PER_ROUND = 4
"""Number of next nodes proposed at once. The first accepted proposal is used."""
MAX_REJECTION_ROUNDS = 4
"""Number of further rounds for rejected walks, before all neighbors are weighed exactly."""


@dataclass(frozen=True)
class RandomWalks(Similarity):
    """Random walks as rows.

    An epoch has `walks_per_node` walks from each node with an edge. Every walk is new in every epoch.
    `WordWindows` treats a walk as a sentence. It draws windows of random reach over the walk, and noise in
    proportion to (sum of edge weights)^`noise_exponent`. The output is that of `WordWindows`.
    """

    walk_length: int = 80
    walks_per_node: int = 10
    return_parameter: float = 1.0
    in_out_parameter: float = 1.0
    window: int = 10
    shared_negatives: int = 32
    noise_exponent: float = 0.75

    def count(self, data: Any) -> int:
        return len(build_walk_tables(data).start_nodes) * self.walks_per_node

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        steps, slots = build_walk_tables(data), torch.from_numpy(rows.slots)
        origin = steps.start_nodes[torch.from_numpy(rows.ids % len(steps.start_nodes))]
        walked = _WalkText(
            data, draw_walks(steps, origin, self.walk_length, self.return_parameter, self.in_out_parameter, rng_key("walk"), slots).numpy()
        )
        blocks = Rows(np.arange(len(rows)), rows.slots, rows.batch_ids)
        return WordWindows(self.walk_length, self.window, 0.0, self.shared_negatives, self.noise_exponent).read(walked, blocks, rng_key)

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)


@dataclass(frozen=True)
class _WalkText:
    """Walks in the format of running text.

    All texts of one graph compare as equal, so that cached word frequencies are reused.
    """

    graph: Any
    walks: np.ndarray = field(compare=False)

    @property
    def tokens(self) -> np.ndarray:
        """Return the nodes of all walks, concatenated."""
        return self.walks.reshape(-1)

    @property
    def is_sentence_start(self) -> np.ndarray:
        """Return flags that are True at the first node of each walk."""
        first = np.zeros(self.walks.shape, dtype=bool)
        first[:, 0] = True
        return first.reshape(-1)

    @property
    def counts(self) -> np.ndarray:
        """Return the weighted degree of each node, which stands for its word count."""
        return self.graph.weighted_degrees


@dataclass(frozen=True, eq=False)
class WalkTables:
    """Lookup tables of a graph for random walks."""

    neighbor_offsets: Int64[Tensor, " nodes_and_one"]
    neighbors: Int64[Tensor, " edge_codes"]
    edge_codes: Int64[Tensor, " edge_codes"]
    """Every edge as one number, node * nodes + neighbor, ascending. Bisection finds an edge."""
    cumulative_weights: Float64[Tensor, " edges_and_one"] | None
    """Sum of the weights of all edges before each edge. None if all weights are equal."""
    start_nodes: Int64[Tensor, " k"]
    """Nodes with at least one edge."""

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.neighbor_offsets) - 1

    def draw_neighbors(self, nodes: Int64[Tensor, "n t"], uniform: Float64[Tensor, "n t"]) -> Int64[Tensor, "n t"]:
        """Draw a neighbor of each node in proportion to the edge weights."""
        first, last = self.neighbor_offsets[nodes], self.neighbor_offsets[nodes + 1]
        if self.cumulative_weights is None:
            place = first + (uniform * (last - first)).long()
        else:
            low, high = self.cumulative_weights[first], self.cumulative_weights[last]
            place = torch.searchsorted(self.cumulative_weights, low + uniform * (high - low), right=True) - 1
        return self.neighbors[torch.minimum(torch.maximum(place, first), last - 1)]

    def has_edge(self, a: Int64[Tensor, "*n"], b: Int64[Tensor, "*n"]) -> Bool[Tensor, "*n"]:
        """Return True for pairs of nodes that have an edge."""
        wanted = a * self.num_nodes + b
        return self.edge_codes[torch.searchsorted(self.edge_codes, wanted).clamp_max(len(self.edge_codes) - 1)] == wanted


@functools.lru_cache(maxsize=2)
def build_walk_tables(graph: Any) -> WalkTables:
    """Build the lookup tables of a graph. The result is cached."""
    starts, neighbours = torch.from_numpy(graph.neighbor_offsets), torch.from_numpy(graph.neighbors)
    degree = starts.diff()
    owner = torch.arange(len(degree)).repeat_interleave(degree)
    cumulated = None
    if graph.weights is not None:
        weights = torch.from_numpy(graph.weights).double()
        cumulated = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    return WalkTables(starts, neighbours, owner * len(degree) + neighbours, cumulated, degree.nonzero()[:, 0])


def draw_walks(
    tables: WalkTables,
    start_nodes: Int64[Tensor, " n"],
    length: int,
    return_parameter: float,
    in_out_parameter: float,
    rng_key: RandomKey,
    slots: Int64[Tensor, " n"],
) -> Int64[Tensor, "n length"]:
    r"""Draw walks of `length` nodes from `start_nodes`.

    From v, coming from t, the next node x is drawn in proportion to

    \[ w_{vx} \cdot \begin{cases} 1/p & x = t \\ 1 & (t, x) \in E \\ 1/q & \text{else} \end{cases} \]

    with p = `return_parameter` and q = `in_out_parameter`. A small p favors going back. A small q favors
    distant nodes.

    The method is rejection sampling: a neighbor is proposed in proportion to w, and accepted with its factor
    divided by the largest of the three factors. Unlike alias sampling of second-order walks, it needs no
    table with (edges x neighbors) entries. If all proposals are rejected for several rounds, as at a dead end
    with a large p, all neighbors are weighed.

    Reference: Grover & Leskovec, node2vec: Scalable Feature Learning for Networks, KDD 2016.
    """
    drawn = rng_key.uniform(slots, length, PROPOSALS_PER_ROUND, 2).double()
    path = [start_nodes, tables.draw_neighbors(start_nodes[:, None], drawn[:, 0, :1, 0])[:, 0]]
    for i in range(1, length - 1):
        before, now = path[-2], path[-1]
        chosen, accepted = _draw_accepted(tables, before, now, drawn[:, i], return_parameter, in_out_parameter)
        rejected, again = (~accepted).nonzero()[:, 0], 0
        while len(rejected) and again < MAX_REJECTION_ROUNDS:
            more = rng_key("again", i, again).uniform(slots[rejected], PROPOSALS_PER_ROUND, 2).double()
            found, accepted = _draw_accepted(tables, before[rejected], now[rejected], more, return_parameter, in_out_parameter)
            chosen[rejected[accepted]] = found[accepted]
            rejected, again = rejected[~accepted], again + 1
        if len(rejected):
            u = rng_key("weighed", i).uniform(slots[rejected], 1)[:, 0].double()
            chosen[rejected] = _draw_exactly(tables, before[rejected], now[rejected], u, return_parameter, in_out_parameter)
        path.append(chosen)
    return torch.stack(path[:length], dim=1)


def _draw_accepted(
    steps: WalkTables, before: Int64[Tensor, " n"], now: Int64[Tensor, " n"], u: Float64[Tensor, "n t 2"], p: float, q: float
) -> tuple[Int64[Tensor, " n"], Bool[Tensor, " n"]]:
    """Return the first accepted proposal and an acceptance flag."""
    if p == q == 1:
        return steps.draw_neighbors(now[:, None], u[:, :1, 0])[:, 0], torch.ones_like(now, dtype=torch.bool)
    wide = u.shape[:2]
    proposed = steps.draw_neighbors(now[:, None].expand(wide), u[:, :, 0])
    accepted = u[:, :, 1] < _compute_factor(steps, before[:, None].expand(wide), proposed, p, q) / max(1 / p, 1.0, 1 / q)
    first = accepted.to(torch.int8).argmax(1, keepdim=True)
    return proposed.gather(1, first)[:, 0], accepted.any(1)


def _compute_factor(steps: WalkTables, before: Int64[Tensor, "*n"], x: Int64[Tensor, "*n"], p: float, q: float) -> Float64[Tensor, "*n"]:
    """Compute the factor of each step to x after `before`.

    The factor is 1/p if x is `before`, 1 if x is a neighbor of `before`, and 1/q otherwise.
    """
    return torch.where(x == before, 1 / p, torch.where(steps.has_edge(before, x), 1.0, 1 / q)).double()


def _draw_exactly(
    steps: WalkTables, before: Int64[Tensor, " n"], now: Int64[Tensor, " n"], u: Float64[Tensor, " n"], p: float, q: float
) -> Int64[Tensor, " n"]:
    """Draw the next nodes exactly.

    The method inverts the cumulative weights of all neighbors. The cost is proportional to the number of
    neighbors.
    """
    first, degree = steps.neighbor_offsets[now], steps.neighbor_offsets[now + 1] - steps.neighbor_offsets[now]
    ends = degree.cumsum(0)
    edge = torch.arange(int(ends[-1])) + (first - ends + degree).repeat_interleave(degree)
    x = steps.neighbors[edge]
    weight = _compute_factor(steps, before.repeat_interleave(degree), x, p, q)
    if steps.cumulative_weights is not None:
        weight = weight * (steps.cumulative_weights[edge + 1] - steps.cumulative_weights[edge])
    cumulated = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    low, high = cumulated[ends - degree], cumulated[ends]
    place = torch.searchsorted(cumulated, low + u * (high - low), right=True) - 1
    return x[torch.minimum(torch.maximum(place, ends - degree), ends - 1)]
