"""Losses in two gloo processes: each rank's own by default; shared, equal to those of one process; errors where ranks disagree."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nearfar.core import UsageError
from nearfar.core.ranks import gather_from_ranks
from nearfar.losses import batch_hard, clip, info_nce, lifted_structure, mine_hardest_negatives, nt_xent, spreading, supcon, uniformity
from nearfar.scores import Scores, bilinear, euclidean, gather_with_gradient, rowmap, shared_over_ranks
from nearfar.scores import table as table_module

ROWS = (6, 7)
"""Rows of rank 0 and of rank 1."""
BOTH = [slice(0, 6), slice(6, 13)]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    return randn(13, 4), randn(13, 4, seed=1), torch.arange(13) % 3


LOCAL = {
    "nt_xent": lambda a, b, y: nt_xent(a, b),
    "clip": lambda a, b, y: clip(a, b, 5.0),
    "info_nce in blocks": lambda a, b, y: info_nce(replace(Scores.from_pairs(a, b) / 0.2, rows_per_block=2)),
    "matched": lambda a, b, y: info_nce(Scores.from_matched(a, b, negatives=randn(4, 4, seed=2)) / 0.3),
    "supcon": lambda a, b, y: supcon(Scores.from_labels(a, y) / 0.3),
    "batch_hard": lambda a, b, y: batch_hard(Scores.from_labels(a, y, score=euclidean)),
    "spreading": lambda a, b, y: spreading(Scores.from_pairs(a, b)),
    "lifted": lambda a, b, y: lifted_structure(Scores.from_labels(a, y, score=euclidean)),
    "uniformity": lambda a, b, y: uniformity(a),
    "hardest_negatives": lambda a, b, y: mine_hardest_negatives(Scores.from_labels(a, y), 2).double() * a[:, :1],
}


def local_values(at: slice) -> dict[str, list[Tensor]]:
    """Values and gradients of every loss on some of the rows."""
    found = {}
    for name, loss in LOCAL.items():
        a, b, y = (x[at] for x in batch())
        value = loss(a.requires_grad_(), b.requires_grad_(), y)
        value.sum().backward()
        found[name] = [value.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in (a, b))]
    return found


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.f, self.log_tau = nn.Linear(4, 3), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.f(x), self.log_tau.exp()


def gradients_with_ddp(share: slice, local_loss: bool = False, shared: bool = False) -> list[Tensor]:
    """Gradients of one step of a loop of DistributedDataParallel."""
    model = DistributedDataParallel(Encoder().double())
    a, b, _ = (x[share] for x in batch())
    z, tau = model(torch.cat([a, b]))
    z0, z1 = z.chunk(2)
    if local_loss:  # own rows against all columns: those of the own pairs first
        all1 = gather_with_gradient(z1)
        order = torch.cat([all1[share], all1[: share.start], all1[share.stop :]])
        loss = info_nce(Scores.from_pairs(z0, order) / tau).mean()
    else:
        z0, z1 = gather_with_gradient(z0), gather_with_gradient(z1)
        with shared_over_ranks() if shared else contextlib.nullcontext():
            loss = nt_xent(z0, z1, tau) if not shared else info_nce(replace(Scores.from_views(z0, z1) / tau, rows_per_block=3)).mean()
    loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def gradients_alone(at: slice, local_loss: bool) -> list[Tensor]:
    model = Encoder().double()
    a, b, _ = (x[at] for x in batch())
    z, tau = model(torch.cat([a, b]))
    z0, z1 = z.chunk(2)
    (info_nce(Scores.from_pairs(z0, z1) / tau).mean() if local_loss else nt_xent(z0, z1, tau)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _inputs() -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    shapes = [(7, 4), (7, 4), (4, 4), ()]
    return [torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for shape in shapes]


def _mixed(a: Tensor, label: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = a @ w @ b.T + label[:, None]
    return s.logsumexp(1), s.tanh() @ b


def _answers() -> list[Tensor]:
    """Values of several streamed computations, each followed by the gradients of all inputs."""
    table_module.MAX_DENSE_ENTRIES = 0
    label = torch.arange(7) % 3
    computations = [
        lambda a, b, w, s: sum(r.square().sum() for r in rowmap(_mixed, (a, label), (b, w), 2)),
        lambda a, b, w, s: rowmap(lambda x, k: (x * k.sum()).sum(1), (a[:1],), (b,), 4).sum(),  # fewer rows than ranks
        lambda a, b, w, s: info_nce(replace(Scores.from_pairs(a, b, score=bilinear(w)) * s.exp(), rows_per_block=2)).mean(),
        lambda a, b, w, s: info_nce(replace(Scores.from_views(a, b) * s.exp(), rows_per_block=3)).sum(),
        lambda a, b, w, s: info_nce(Scores.from_matched(a, b, negatives=w) / 0.3).mean(),
        lambda a, b, w, s: info_nce(Scores.from_labels(a, label) / 0.3).mean(),
        lambda a, b, w, s: clip(a, b, s.exp()),
        lambda a, b, w, s: uniformity(a),
    ]
    answers = []
    for compute in computations:
        inputs = _inputs()
        with shared_over_ranks():
            value = compute(*inputs)
        value.backward()  # what is shared was decided in forward
        answers += [value.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)]
    return answers


def refusals(rank: int) -> dict[str, str]:
    """Messages of this rank's errors where the ranks pass different batches."""
    a, b, y = batch()
    own = slice(0, ROWS[rank])
    other = a + 0.01 * rank
    wrong = {
        "rows of a small table": lambda: nt_xent(a[own], b[own]),
        "rows of a streamed table": lambda: info_nce(replace(Scores.from_pairs(a[own], b[own]), rows_per_block=2)),
        "small on one rank only": lambda: info_nce(replace(Scores.from_pairs(a[own], b[own]), rows_per_block=2 if rank else None)),
        "rows of rowmap": lambda: rowmap(lambda x: x, (a[own],)),
        "rows of clip": lambda: clip(a[own], b[own], 5.0),
        "columns": lambda: info_nce(Scores.from_matched(a, b, negatives=b[: 3 + rank])),
        "dtype": lambda: info_nce(Scores.from_pairs(a.float() if rank else a, b.float() if rank else b)),
        "contents": lambda: nt_xent(other, b),
        "order of the rows": lambda: uniformity(a.flip(0) if rank else a),
        "labels": lambda: supcon(Scores.from_labels(a, y.roll(rank))),
        "temperature": lambda: supcon(Scores.from_labels(a, y) / (0.5 + 0.1 * rank)),
        "NaN on one rank": lambda: nt_xent(a, b * torch.tensor([1.0, torch.nan][rank])),
    }
    found = {}
    for name, call in wrong.items():
        with pytest.raises(UsageError) as refused, shared_over_ranks():
            call()
        found[name] = str(refused.value)
    with pytest.raises(UsageError) as refused:
        gather_from_ranks(torch.zeros(2, 3 + rank))
    return found | {"gather": str(refused.value)}


def accepted(rank: int) -> list[Tensor]:
    """Shared values that must not be refused, and must be those of one process."""
    a, b, y = batch()
    found = []
    with shared_over_ranks():
        found.append(nt_xent(a * (1 + 1e-15 * rank), b))  # other machines round differently
        found.append(nt_xent(a * torch.nan, b).isnan())
        inside = Scores.from_views(a, b).map_blocks(lambda block: (info_nce(replace(block, rows_per_block=1)),))[
            0
        ]  # a loss within a row function
        found += [
            inside,
            mine_hardest_negatives(Scores.from_labels(a, y), 2),
            info_nce(Scores.from_lists(a, b)),
        ]  # of listed scores the vectors are empty
    return found


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    table_module.MAX_DENSE_ENTRIES = 0
    found = {
        "local": local_values(BOTH[rank]),
        "ddp": gradients_with_ddp(BOTH[rank]),
        "ddp, shared": gradients_with_ddp(BOTH[rank], shared=True),
        "ddp, local loss": gradients_with_ddp((slice(0, 6), slice(6, 12))[rank], local_loss=True),
        "gathered labels": gather_with_gradient(torch.arange(ROWS[rank]) + 10 * rank),
        "accepted": accepted(rank),
    }
    found["shared"] = _answers()
    table_module.MAX_DENSE_ENTRIES = 1 << 22
    found |= {"refusals": refusals(rank), "small": accepted(rank)}
    if rank == 0:
        found["only here"] = uniformity(batch()[0])
    total = torch.ones(1)
    dist.all_reduce(total)  # the group is still in order
    torch.save(found | {"total": total}, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    folder: Path = tmp_path_factory.mktemp("sharing")
    mp.spawn(work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / str(rank), weights_only=True) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_inside_a_group_each_rank_gets_the_loss_of_its_own_rows(ranks, name):
    for rank, at in enumerate(BOTH):
        alone = local_values(at)[name]
        assert alone[0].any()
        torch.testing.assert_close(ranks[rank]["local"][name], alone)


@pytest.mark.slow
def test_ddp_with_gathered_rows_has_the_gradient_of_the_global_batch(ranks):
    alone = gradients_alone(slice(0, 13), False)
    assert len(alone) == 3
    for rank in ranks:
        torch.testing.assert_close(rank["ddp"], alone)
        torch.testing.assert_close(rank["ddp, shared"], alone)


@pytest.mark.slow
def test_ddp_with_local_losses_has_the_gradient_of_their_mean(ranks):
    alone = gradients_alone(slice(0, 12), True)
    for rank in ranks:
        torch.testing.assert_close(rank["ddp, local loss"], alone)


@pytest.mark.slow
def test_integers_are_gathered_without_gradient(ranks):
    for rank in ranks:
        assert rank["gathered labels"].tolist() == [*range(6), *range(10, 17)]


def test_without_a_group_gathering_changes_nothing():
    rows = randn(3, 2).requires_grad_()
    assert gather_with_gradient(rows) is rows


SAID = {
    "rows of": " rows (rank ",
    "small on": "6, 7 rows",
    "columns": "different shapes",
    "dtype": "different shapes, dtypes",
    "gather": "differ",
}


@pytest.mark.slow
def test_unequal_batches_are_refused_on_every_rank(ranks):
    for rank in ranks:
        for name, message in rank["refusals"].items():
            expected = next((text for start, text in SAID.items() if name.startswith(start)), "rank 1 has different values than rank 0")
            assert expected in message, name
        assert rank["total"].tolist() == [2.0]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["accepted", "small"])
def test_rounding_and_equal_nan_are_accepted(ranks, size):
    alone = accepted(0)
    for rank in ranks:
        torch.testing.assert_close(rank[size], alone)


@pytest.mark.slow
def test_a_loss_on_one_rank_alone_does_not_wait(ranks):
    torch.testing.assert_close(ranks[0]["only here"], uniformity(batch()[0]))


@pytest.mark.slow
def test_two_ranks_that_share_rows_equal_one(ranks, monkeypatch):
    monkeypatch.setattr(table_module, "MAX_DENSE_ENTRIES", table_module.MAX_DENSE_ENTRIES)
    alone = _answers()
    for rank in ranks:
        assert len(rank["shared"]) == len(alone)
        for a, b in zip(alone, rank["shared"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert sum(bool(x.any()) for x in alone) > 25, "most gradients should not vanish"
