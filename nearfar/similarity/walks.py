"""Nodes that a walk passes one after the other are alike: biased second-order random walks, and windows over them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from nearfar.core import Key, Raw, Rows, Similarity, Views
from nearfar.similarity.text_windows import Windows

TRIES = 4
"""Next nodes that are proposed at once; the first that is accepted is taken."""
ROUNDS = 4
"""How often that is repeated for who was never accepted, before all of their neighbours are weighed."""


@dataclass(frozen=True)
class Walks(Similarity):
    """Rows are walks: `walks` from each node that has an edge make up an epoch, and every walk is new in every epoch.

    A walk is a sentence to `Windows`, which draws windows of random reach over it and noise in proportion to (sum of edge
    weights)^`power`. Gives what `Windows` gives.
    """

    length: int = 80
    walks: int = 10
    p: float = 1.0
    q: float = 1.0
    window: int = 10
    noise: int = 32
    power: float = 0.75

    def count(self, data: Any) -> int:
        return len(steps_of(data).origins) * self.walks

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        steps, slots = steps_of(data), torch.from_numpy(rows.slots)
        origin = steps.origins[torch.from_numpy(rows.ids % len(steps.origins))]
        walked = _Walked(data, walk(steps, origin, self.length, self.p, self.q, key("walk"), slots).numpy())
        blocks = Rows(np.arange(len(rows)), rows.slots, rows.batch)
        return Windows(self.length, self.window, 0.0, self.noise, self.power).read(walked, blocks, key)

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return dict(raw)


@dataclass(frozen=True)
class _Walked:
    """Walks as running text. All texts of a graph are equal to whoever remembers its frequencies."""

    graph: Any
    walks: np.ndarray = field(compare=False)

    @property
    def tokens(self) -> np.ndarray:
        return self.walks.reshape(-1)

    @property
    def begins(self) -> np.ndarray:
        first = np.zeros(self.walks.shape, dtype=bool)
        first[:, 0] = True
        return first.reshape(-1)

    @property
    def counts(self) -> np.ndarray:
        return self.graph.strength


@dataclass(frozen=True, eq=False)
class Steps:
    """A graph as walks need it."""

    starts: Int64[Tensor, " nodes_and_one"]
    neighbours: Int64[Tensor, " edges"]
    edges: Int64[Tensor, " edges"]
    """Every edge as one number, node * nodes + neighbour, ascending: an edge is found by bisection."""
    cumulated: Float64[Tensor, " edges_and_one"] | None
    """Weights of all edges before each; None where all are alike."""
    origins: Int64[Tensor, " k"]
    """The nodes that have an edge."""

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    def propose(self, node: Int64[Tensor, "n t"], u: Float64[Tensor, "n t"]) -> Int64[Tensor, "n t"]:
        """A neighbour of each node, in proportion to the weights of its edges."""
        first, last = self.starts[node], self.starts[node + 1]
        if self.cumulated is None:
            place = first + (u * (last - first)).long()
        else:
            low, high = self.cumulated[first], self.cumulated[last]
            place = torch.searchsorted(self.cumulated, low + u * (high - low), right=True) - 1
        return self.neighbours[torch.minimum(torch.maximum(place, first), last - 1)]

    def joined(self, a: Int64[Tensor, "*n"], b: Int64[Tensor, "*n"]) -> Bool[Tensor, "*n"]:
        """Whether there is an edge between two nodes."""
        wanted = a * self.nodes + b
        return self.edges[torch.searchsorted(self.edges, wanted).clamp_max(len(self.edges) - 1)] == wanted


@functools.lru_cache(maxsize=2)
def steps_of(graph: Any) -> Steps:
    starts, neighbours = torch.from_numpy(graph.starts), torch.from_numpy(graph.neighbours)
    degree = starts.diff()
    owner = torch.arange(len(degree)).repeat_interleave(degree)
    cumulated = None
    if graph.weights is not None:
        weights = torch.from_numpy(graph.weights).double()
        cumulated = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    return Steps(starts, neighbours, owner * len(degree) + neighbours, cumulated, degree.nonzero()[:, 0])


def walk(
    steps: Steps, origin: Int64[Tensor, " n"], length: int, p: float, q: float, key: Key, slots: Int64[Tensor, " n"]
) -> Int64[Tensor, "n length"]:
    r"""Walks of `length` nodes from `origin`. From v, coming from t, the next node x is drawn in proportion to

    \[ w_{vx} \cdot \begin{cases} 1/p & x = t \\ 1 & (t, x) \in E \\ 1/q & \text{else} \end{cases} \]

    by rejection: a neighbour is proposed in proportion to w and accepted with its factor over the largest of the three. No table of
    (edges x neighbours) entries is ever made, as alias sampling of second-order walks would. Small p: back again; small q: far away.
    Where nothing is accepted for long, as at a dead end with a large p, all neighbours are weighed.

    Reference: Grover & Leskovec, node2vec: Scalable Feature Learning for Networks, KDD 2016.
    """
    drawn = key.uniform(slots, length, TRIES, 2).double()
    path = [origin, steps.propose(origin[:, None], drawn[:, 0, :1, 0])[:, 0]]
    for i in range(1, length - 1):
        before, now = path[-2], path[-1]
        chosen, accepted = _first_accepted(steps, before, now, drawn[:, i], p, q)
        rejected, again = (~accepted).nonzero()[:, 0], 0
        while len(rejected) and again < ROUNDS:
            more = key("again", i, again).uniform(slots[rejected], TRIES, 2).double()
            found, accepted = _first_accepted(steps, before[rejected], now[rejected], more, p, q)
            chosen[rejected[accepted]] = found[accepted]
            rejected, again = rejected[~accepted], again + 1
        if len(rejected):
            u = key("weighed", i).uniform(slots[rejected], 1)[:, 0].double()
            chosen[rejected] = _weighed(steps, before[rejected], now[rejected], u, p, q)
        path.append(chosen)
    return torch.stack(path[:length], dim=1)


def _first_accepted(
    steps: Steps, before: Int64[Tensor, " n"], now: Int64[Tensor, " n"], u: Float64[Tensor, "n t 2"], p: float, q: float
) -> tuple[Int64[Tensor, " n"], Bool[Tensor, " n"]]:
    """Of several proposals the first that is accepted, and whether one is."""
    if p == q == 1:
        return steps.propose(now[:, None], u[:, :1, 0])[:, 0], torch.ones_like(now, dtype=torch.bool)
    wide = u.shape[:2]
    proposed = steps.propose(now[:, None].expand(wide), u[:, :, 0])
    accepted = u[:, :, 1] < _factor(steps, before[:, None].expand(wide), proposed, p, q) / max(1 / p, 1.0, 1 / q)
    first = accepted.to(torch.int8).argmax(1, keepdim=True)
    return proposed.gather(1, first)[:, 0], accepted.any(1)


def _factor(steps: Steps, before: Int64[Tensor, "*n"], x: Int64[Tensor, "*n"], p: float, q: float) -> Float64[Tensor, "*n"]:
    """1/p, 1 or 1/q, by where a step to x leads for who comes from `before`."""
    return torch.where(x == before, 1 / p, torch.where(steps.joined(before, x), 1.0, 1 / q)).double()


def _weighed(
    steps: Steps, before: Int64[Tensor, " n"], now: Int64[Tensor, " n"], u: Float64[Tensor, " n"], p: float, q: float
) -> Int64[Tensor, " n"]:
    """The next nodes by inverting the cumulated weights of all neighbours: exact, and as dear as nodes have neighbours."""
    first, degree = steps.starts[now], steps.starts[now + 1] - steps.starts[now]
    ends = degree.cumsum(0)
    edge = torch.arange(int(ends[-1])) + (first - ends + degree).repeat_interleave(degree)
    x = steps.neighbours[edge]
    weight = _factor(steps, before.repeat_interleave(degree), x, p, q)
    if steps.cumulated is not None:
        weight = weight * (steps.cumulated[edge + 1] - steps.cumulated[edge])
    cumulated = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    low, high = cumulated[ends - degree], cumulated[ends]
    place = torch.searchsorted(cumulated, low + u * (high - low), right=True) - 1
    return x[torch.minimum(torch.maximum(place, ends - degree), ends - 1)]
