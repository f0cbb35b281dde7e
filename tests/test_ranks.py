"""Two processes are one: the same gradients for every recipe, in one gloo group."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from helpers import gradients, largest_relative_error
from micro import micro_session, micro_splits

from nearfar import recipes
from nearfar.core.ranks import gather_from_ranks, sum_over_ranks
from nearfar.data import Splits

pytestmark = pytest.mark.slow
ROWWISE = [name for name in recipes.list_methods() if (kind := recipes.load_method(name).recipe_class).rowwise and kind.trains]
BATCH = 7  # odd: the ranks hold 3 and 4 rows


def walk(rank: int, folder: str, data: dict[str, Splits]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        found = {name: gradients(micro_session(name, exact=True, splits=data[name], batch_size=BATCH), chunk_size=2) for name in ROWWISE}
        ragged, own = gather_from_ranks(torch.arange(rank, dtype=torch.float32)[:, None] + 10 * rank)
        total = [torch.full((2,), float(rank + 1)), torch.full((1, 3), 10.0 * rank)]
        sum_over_ranks(total)
        torch.save({"gradients": found, "ragged": ragged, "own": (own.start, own.stop), "total": total}, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(walk, args=(str(folder), {name: micro_splits(name) for name in ROWWISE}), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("name", ROWWISE)
def test_two_ranks_give_the_gradient_of_one(ranks, name):
    one = gradients(micro_session(name, exact=True, batch_size=BATCH))
    for rank in ranks:
        assert largest_relative_error(one, rank["gradients"][name]) < 1e-5


def test_ragged_rows_are_gathered_in_rank_order(ranks):
    for rank in ranks:
        assert rank["ragged"].tolist() == [[10.0]]
    assert [rank["own"] for rank in ranks] == [(0, 0), (0, 1)]


def test_sums_over_ranks(ranks):
    for rank in ranks:
        assert [t.tolist() for t in rank["total"]] == [[3.0, 3.0], [[10.0, 10.0, 10.0]]]
