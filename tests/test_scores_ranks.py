"""Two gloo processes give the values and gradients of one: rowmap, a learned score, losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from nearfar.losses import clip, info_nce, uniformity
from nearfar.scores import bilinear, labelled, matched, pairs, rowmap, views
from nearfar.scores import table as table_module


def _inputs() -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    shapes = [(7, 4), (7, 4), (4, 4), ()]
    return [torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for shape in shapes]


def _mixed(a: Tensor, label: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = a @ w @ b.T + label[:, None]
    return s.logsumexp(1), s.tanh() @ b


def _answers() -> list[Tensor]:
    """Values of several streamed computations, each followed by the gradients of all inputs."""
    table_module.DIRECT = 0
    label = torch.arange(7) % 3
    computations = [
        lambda a, b, w, s: sum(r.square().sum() for r in rowmap(_mixed, (a, label), (b, w), 2)),
        lambda a, b, w, s: rowmap(lambda x, k: (x * k.sum()).sum(1), (a[:1],), (b,), 4).sum(),  # fewer rows than ranks
        lambda a, b, w, s: info_nce(replace(pairs(a, b, score=bilinear(w)) * s.exp(), block=2)).mean(),
        lambda a, b, w, s: info_nce(replace(views(a, b) * s.exp(), block=3)).sum(),
        lambda a, b, w, s: info_nce(matched(a, b, against=w) / 0.3).mean(),
        lambda a, b, w, s: info_nce(labelled(a, label) / 0.3).mean(),
        lambda a, b, w, s: clip(a, b, s.exp()),
        lambda a, b, w, s: uniformity(a),
    ]
    answers = []
    for compute in computations:
        inputs = _inputs()
        value = compute(*inputs)
        value.backward()
        answers += [value.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)]
    return answers


def _one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(_answers(), f"{folder}/answers{rank}")
    dist.destroy_process_group()


def test_two_ranks_equal_one(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(table_module, "DIRECT", table_module.DIRECT)
    mp.spawn(_one_of_two, args=(str(tmp_path),), nprocs=2)
    alone = _answers()
    for rank in range(2):
        together = torch.load(tmp_path / f"answers{rank}", weights_only=True)
        assert len(together) == len(alone)
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert sum(bool(x.any()) for x in alone) > 25, "most gradients should not vanish"
