r"""k-means clustering on the device of the input, in blocks of rows.

The result depends only on the rows and the random key. There is no Python loop over samples. The objective is

$$\min_{c, a} \sum_i \lVert x_i - c_{a_i} \rVert^2$$

Lloyd's algorithm minimizes it, starting from k-means++ centers. Memory is linear in the number of rows,
because distances exist for one block at a time. Sums over clusters are products with one-hot rows, so a CUDA
device gives the same bits every time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey

DISTANCES_PER_BLOCK = 1 << 24
"""Approximate number of distances to the centers in one block of rows."""
CLUSTER_SPLIT_OFFSET = 1e-3
"""Offset of the two halves of a divided cluster from its center, relative to each coordinate."""


class Clusters(NamedTuple):
    """Result of k-means.

    `centers` has shape (k, d). `cluster_ids` (n,) holds the cluster of each row. `inertia` is the sum of
    squared distances between rows and their centers.
    """

    centers: Tensor
    cluster_ids: Tensor
    inertia: Tensor


@torch.no_grad()
def kmeans(x: Float[Tensor, "n d"], num_clusters: int, rng_key: RandomKey, max_iterations: int = 20) -> Clusters:
    """Cluster the rows into `num_clusters` clusters.

    The loop stops before `max_iterations` if no row changes its cluster. A cluster that loses all its rows
    takes half of a large cluster. Empty clusters remain only if there are fewer distinct rows than clusters.

    Args:
        x: Rows, shape (n, d).
        num_clusters: Number of clusters k, from 1 to n.
        rng_key: Random key of the first centers.
        max_iterations: Largest number of iterations.

    Returns:
        Centers (k, d), cluster ids (n,) and inertia.

    References: Lloyd 1982; Arthur, Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
    """
    check_num_clusters(num_clusters, len(x))
    centres = x[_spread_rows(x, num_clusters, rng_key)]
    found = _assign(x, centres)
    for _ in range(max_iterations):
        sums, sizes = _sums(x, found.cluster_ids, num_clusters)
        centres = torch.where(sizes[:, None] > 0, sums / sizes[:, None].clamp_min(1), found.centers)
        before, found = found, _assign(x, _divide_largest(centres, sizes))
        if torch.equal(before.cluster_ids, found.cluster_ids):
            break
    return found


def check_num_clusters(num_clusters: int, num_samples: int) -> None:
    """Raise `UsageError` unless `num_samples` rows can form `num_clusters` clusters."""
    if not 1 <= num_clusters <= num_samples:
        raise UsageError(f"{num_samples} samples cannot form {num_clusters} clusters: choose 1 to {num_samples} clusters (--clusters)")


def _spread_rows(x: Float[Tensor, "n d"], k: int, rng_key: RandomKey) -> Int[Tensor, " k"]:
    """Draw k initial centers with k-means++ and return their row numbers.

    The probability of each next row is proportional to its squared distance from the rows drawn before. Each
    row gets an exponential waiting time of rate w. The row with rate w has the smallest time with probability
    w / sum of w.
    """
    slots, squares = torch.arange(len(x), device=x.device), x.square().sum(1)
    row = rng_key("first").integers(slots[:1], len(x))
    chosen, distance = [row], torch.full_like(squares, torch.inf)
    for i in range(1, k):
        distance = torch.minimum(distance, (squares + squares[row] - 2 * (x @ x[row[0]])).clamp_min(0)).index_fill(0, row, 0.0)
        row = (-torch.log1p(-rng_key("next", i).uniform(slots)) / distance).nan_to_num(torch.inf).argmin(0, keepdim=True)
        chosen.append(row)
    return torch.cat(chosen)


def _blocks(x: Tensor, k: int) -> tuple[Tensor, ...]:
    return x.split(max(1, DISTANCES_PER_BLOCK // k))


def _assign(x: Float[Tensor, "n d"], centers: Float[Tensor, "k d"]) -> Clusters:
    """Assign each row to its nearest center."""
    half = centers.square().sum(1) / 2
    assigned = torch.cat([(half - block @ centers.T).argmin(1) for block in _blocks(x, len(centers))])
    return Clusters(centers, assigned, (x - centers[assigned]).square().sum())


def _sums(x: Float[Tensor, "n d"], assigned: Int[Tensor, " n"], k: int) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Return the sum and the number of rows of each cluster."""
    sums, sizes, clusters = x.new_zeros(k, x.shape[1]), x.new_zeros(k), torch.arange(k, device=x.device)
    for block, at in zip(_blocks(x, k), _blocks(assigned, k), strict=True):
        member = (at[:, None] == clusters).to(x)
        sums, sizes = sums + member.T @ block, sizes + member.sum(0)
    return sums, sizes


def _divide_largest(centers: Float[Tensor, "k d"], sizes: Float[Tensor, " k"]) -> Float[Tensor, "k d"]:
    """Move the center of each empty cluster next to the center of a large cluster.

    Both centers move a little, to opposite sides of the large cluster's old center.
    """
    empty, large = (sizes == 0).nonzero()[:, 0], sizes.argsort(descending=True, stable=True)
    count = min(len(empty), int((sizes > 1).sum()))
    if count == 0:
        return centers
    empty, large = empty[:count], large[:count]
    sign = 1 - 2 * (torch.arange(centers.shape[1], device=centers.device) % 2)
    middle, centers = centers[large], centers.clone()
    centers[empty], centers[large] = middle * (1 + CLUSTER_SPLIT_OFFSET * sign), middle * (1 - CLUSTER_SPLIT_OFFSET * sign)
    return centers
