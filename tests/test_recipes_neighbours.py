"""What is special to local aggregation, InterCLR and Exemplar-CNN, by loops in float64, and what becomes of their banks and clusters."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from helpers import tiny_session
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import Net, RandomKey, RuntimeConfig, UsageError
from nearfar.core.kmeans import kmeans
from nearfar.recipes.vision.exemplar_cnn import ExemplarCNN
from nearfar.recipes.vision.instance_discrimination_npid import NPID
from nearfar.recipes.vision.interclr import InterCLR, pick_same_label
from nearfar.recipes.vision.local_aggregation import LocalAggregation
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook, train

KEY = RandomKey(0)
NAMES = {LocalAggregation: "local-aggregation", InterCLR: "interclr"}


def session_of(recipe, **changes) -> TrainingSession:
    """A session of the recipe with the given hyperparameters, on digits."""
    tiny = tiny_session(NAMES[type(recipe)], **changes)
    return TrainingSession(recipe, tiny.config, RuntimeConfig(), tiny.data, torch.device("cpu"))


def unit_rows(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


# --- local aggregation ----------------------------------------------------------------------------


def aggregation_by_hand(net: Net, v: Tensor, ids: list[int], recipe: LocalAggregation) -> float:
    """-log P(C and B | v) / P(B | v), with sets."""
    bank, labels, total = net.bank.rows, net.labels.rows.tolist(), 0.0
    for i, row in zip(ids, v, strict=True):
        p = [math.exp(float(bank[j] @ row) / recipe.temperature) for j in range(len(bank))]
        background = set(sorted(range(len(bank)), key=lambda j: -p[j])[: recipe.background_neighbors])
        close = {j for h in range(recipe.clusterings) for j in range(len(bank)) if labels[j][h] == labels[i][h]}
        if close & background:
            total -= math.log(sum(p[j] for j in close & background) / sum(p[j] for j in background))
    return total / len(ids)


@pytest.mark.parametrize("neighbours", [12, 1437])
def test_local_aggregations_objective_is_that_of_its_paper(neighbours):
    recipe = LocalAggregation(clusters=30, clusterings=2, background_neighbors=neighbours, aggregate_from_epoch=0, dim=16, temperature=0.2)
    session = session_of(recipe, batch_size=16)
    session.refresh(0)
    net, ids = session.net.double(), [3, 700, 41, 1200, 8]
    net.bank.put(slice(None), F.normalize(net.bank.rows, dim=1))  # of unit length in double precision too
    near = F.normalize(net.bank.rows[ids] + 0.1 * unit_rows(5, 16), dim=1)
    loss = recipe.objective(net, {"f": near, "id": torch.tensor(ids)}, KEY)
    assert float(loss) == pytest.approx(aggregation_by_hand(net, near, ids, recipe), rel=1e-9)
    assert float(loss) > 0


def test_local_aggregation_begins_as_instance_discrimination():
    recipe = LocalAggregation(clusters=30, aggregate_from_epoch=2, dim=16)
    session = session_of(recipe, batch_size=16)
    z = {"f": unit_rows(8, 16).float(), "id": torch.arange(8)}
    session.refresh(1)
    assert not session.net.labels.rows.any()
    before = recipe.objective(session.net, z, KEY)
    torch.testing.assert_close(before, NPID(dim=16, temperature=recipe.temperature).objective(session.net, z, KEY))
    session.refresh(2)
    assert float(recipe.objective(session.net, z, KEY)) != pytest.approx(float(before))


def test_local_aggregations_clusterings_are_of_the_bank_and_differ():
    recipe = LocalAggregation(clusters=30, clusterings=3, aggregate_from_epoch=1, dim=16)
    session = session_of(recipe, batch_size=359, steps=9)  # 4 steps an epoch
    seen: list[tuple[Tensor, Tensor]] = []

    class Watch(Hook):
        def step(self, session, values, z):
            seen.append((session.net.labels.rows.clone(), session.net.bank.rows.clone()))

    train(session, [Watch()])
    assert not any(labels.any() for labels, _ in seen[:4])
    assert torch.equal(seen[4][0], seen[7][0])
    for h in range(3):
        clusters = kmeans(seen[3][1], 30, session.rng_key("refresh", 1)("kmeans", h)).cluster_ids  # the bank as the first epoch left it
        assert torch.equal(seen[4][0][:, h], clusters)
    assert len({tuple(column.tolist()) for column in seen[4][0].T}) == 3
    assert not torch.equal(seen[7][0], seen[8][0])
    torch.testing.assert_close(seen[8][1].norm(dim=1), torch.ones(len(seen[8][1])))


def test_local_aggregation_draws_close_neighbours_nearer():
    recipe = LocalAggregation(clusters=10, clusterings=1, background_neighbors=100, aggregate_from_epoch=0, dim=8, temperature=0.5)
    session = session_of(recipe, batch_size=16)
    session.refresh(0)
    net, ids = session.net, torch.arange(32)
    v = F.normalize(net.bank[ids] + 0.3 * unit_rows(32, 8).float(), dim=1).requires_grad_()
    background, close = recipe.find_neighborhood(net, v.detach(), ids)
    (gradient,) = torch.autograd.grad(recipe.objective(net, {"f": v, "id": ids}, KEY), v)
    towards = torch.einsum("nd,nkd->nk", -gradient, net.bank[background])
    mixed = close.any(1) & ~close.all(1)
    assert mixed.sum() > 16
    mean = lambda which: (towards * which).sum(1)[mixed] / which.sum(1)[mixed]
    assert (mean(close) > mean(~close)).all()


def test_too_many_clusters_are_refused():
    for recipe in (LocalAggregation(clusters=5000), InterCLR(clusters=5000)):
        with pytest.raises(UsageError, match="cannot form 5000 clusters"):
            session_of(recipe, batch_size=16)


# --- InterCLR -------------------------------------------------------------------------------------


def interclr_session(**changes: Any) -> TrainingSession:
    recipe = dataclasses.replace(InterCLR(queue_size=64, clusters=12, negative_pool_size=20, negatives=9, dim=16), **changes)
    session = session_of(recipe, batch_size=128, steps=14)
    session.refresh(0)
    return session


def inter_by_hand(net: Net, q: Tensor, ids: list[int], slots: Tensor, recipe: InterCLR, rng_key: RandomKey) -> float:
    labels, bank, total = net.labels.rows.tolist(), net.bank.rows, 0.0
    share, places = (
        rng_key("positive").uniform(slots),
        rng_key("negatives").integers(slots, min(recipe.negative_pool_size, len(bank)), recipe.negatives),
    )
    for row, i in enumerate(ids):
        alike = [j for j in range(len(bank)) if labels[j] == labels[i]]
        others = sorted((j for j in range(len(bank)) if labels[j] != labels[i]), key=lambda j: -float(bank[j] @ q[row]))
        positive = math.exp((float(bank[alike[int(float(share[row]) * len(alike))]] @ q[row]) - recipe.margin) / recipe.temperature)
        drawn = [others[p] for p in places[row].tolist() if p < len(others)]  # beyond them are images of the same label
        negative = sum(math.exp(float(bank[j] @ q[row]) / recipe.temperature) for j in drawn)
        total -= math.log(positive / (positive + negative))
    return total / len(ids)


@pytest.mark.parametrize(("clusters", "pool"), [(12, 20), (2, 5000)])
def test_interclrs_objective_mixes_views_and_images(clusters, pool):
    session = interclr_session(clusters=clusters, negative_pool_size=pool, negatives=30)
    recipe, net, ids = session.recipe, session.net.double(), [5, 9, 300, 1100]
    assert isinstance(recipe, InterCLR)
    z = {"q": unit_rows(4, 16), "k": unit_rows(4, 16, seed=1), "id": torch.tensor(ids), "slot": torch.arange(50, 54)}
    intra = float(MoCoV2(queue_size=64, dim=16).objective(net, z, KEY))
    inter = inter_by_hand(net, z["q"], ids, z["slot"], recipe, KEY)
    assert float(recipe.objective(net, z, KEY)) == pytest.approx(0.75 * intra + 0.25 * inter, rel=1e-9)
    views_alone = dataclasses.replace(recipe, view_pair_weight=1.0)
    assert float(views_alone.objective(net, z, KEY)) == pytest.approx(intra, rel=1e-9)
    q = z["q"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(recipe.inter_image_loss(net, q, z, KEY), q)
    assert gradient.isfinite().all()


def test_a_sample_of_the_same_label_is_drawn_evenly():
    labels = torch.tensor([2, 0, 1, 0, 2, 0, 0])
    where = KEY.uniform(torch.arange(4000))
    drawn = pick_same_label(labels, torch.zeros(4000, dtype=torch.long), where)
    counts = torch.bincount(drawn, minlength=7)
    assert set(counts.nonzero()[:, 0].tolist()) == {1, 3, 5, 6}
    assert int(counts[[1, 3, 5, 6]].min()) > 900
    edge = pick_same_label(labels, torch.tensor([0, 1, 2]), torch.full((3,), 1 - 2.0**-24))
    assert edge.tolist() == [6, 2, 4]


def test_interclrs_clusters_follow_the_batches():
    session = interclr_session()
    net = session.net
    start, centroids = net.labels.rows.clone(), net.centroids.rows.clone()
    torch.testing.assert_close(net.bank.rows, session.encode_all("key"))
    seen = []

    class Watch(Hook):
        def step(self, session, values, z):
            nonlocal centroids
            assert torch.equal(net.bank[z["id"]], z["k"])
            assert torch.equal(net.labels[z["id"]], (z["k"] @ centroids.T).argmax(1))
            centroids = net.centroids.rows.clone()
            seen.append(z["id"])

    train(session, [Watch()])
    once = torch.cat(seen[:11]).unique()
    assert len(once) == 11 * 128
    assert (net.labels[once] != start[once]).any()
    assert torch.equal(net.members.rows.long(), torch.bincount(net.labels.rows, minlength=12))
    for cluster in net.members.rows.nonzero()[:, 0].tolist():
        mean = net.bank.rows[net.labels.rows == cluster].mean(0)
        torch.testing.assert_close(net.centroids.rows[cluster], mean, rtol=1e-3, atol=1e-5)


# --- Exemplar-CNN ---------------------------------------------------------------------------------


def test_exemplars_objective_is_a_softmax_over_all_images():
    w, g, ids = 3 * unit_rows(9, 5), 2 * unit_rows(4, 5, seed=1), [8, 0, 3, 3]
    loss = ExemplarCNN().objective(Net(w=w), {"g": g, "id": torch.tensor(ids)}, KEY)
    by_hand = 0.0
    for row, i in zip(g, ids, strict=True):
        scores = [math.exp(float(w[j] @ row)) for j in range(9)]
        by_hand -= math.log(scores[i] / sum(scores))
    assert float(loss) == pytest.approx(by_hand / 4, rel=1e-9)


def test_exemplars_classes_are_learned_and_saved_with_the_net():
    session = tiny_session("exemplar-cnn", batch_size=64, steps=3)
    net, before = session.net, session.net.w.detach().clone()
    assert net.w.shape == (len(session.data), net.encoder.dim)
    assert net.w.requires_grad
    train(session)
    assert "w" in net.state_dict()
    assert (net.w.detach() != before).any(1).all(), "each is a negative of everybody"
