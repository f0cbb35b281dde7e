"""Relatives of SimCLR and MoCo: what is special to each, against loops, and against the method it is made from."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from helpers import opened, tiny_session
from torch.nn import functional as F

import nearfar
from nearfar import recipes
from nearfar.core import Net, RandomKey, Recipe, Rows, UsageError
from nearfar.losses import whiten
from nearfar.similarity.jigsaw import Jigsaw, join_tiles, split_tiles
from nearfar.similarity.labels import LabeledViews, choose_samples_per_class
from nearfar.similarity.view_presets import handwriting_views
from nearfar.train.training_loop import Hook, train

NOTHING = Net()
KEY = RandomKey(0)("objective", 0)


def _unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1)


def _two_views(n: int = 6) -> dict[str, torch.Tensor]:
    return {"z0": _unit(n, 4), "z1": _unit(n, 4, seed=1)}


def made(name: str, **settings) -> Recipe:
    return dataclasses.replace(recipes.load_method(name).recipe_class(), **settings)


def loss_of(recipe: Recipe, z: dict[str, torch.Tensor], net: Net = NOTHING) -> float:
    found = recipe.objective(net, z, KEY)
    return float(found["loss"] if isinstance(found, dict) else found)


# --- labels ---------------------------------------------------------------------------------------


def test_supcon_averages_over_every_other_view_of_the_class():
    z, y = _two_views(), torch.tensor([0, 1, 0, 2, 1, 0])
    rows, labels = torch.cat([z["z0"], z["z1"]]).tolist(), y.tolist() * 2
    score = [[sum(a * b for a, b in zip(p, q, strict=True)) / 0.2 for q in rows] for p in rows]
    total = 0.0
    for i in range(12):
        positives = [p for p in range(12) if p != i and labels[p] == labels[i]]
        assert len(positives) == 2 * labels[:6].count(labels[i]) - 1
        whole = math.log(math.fsum(math.exp(score[i][a]) for a in range(12) if a != i))
        total += math.fsum(whole - score[i][p] for p in positives) / len(positives)
    assert loss_of(made("supcon", temperature=0.2), {**z, "y": y}) == pytest.approx(total / 12)


def test_supcon_of_images_that_are_classes_of_their_own_is_simclr():
    z = _two_views()
    assert loss_of(made("supcon", temperature=0.5), {**z, "y": torch.arange(6)}) == pytest.approx(loss_of(made("simclr"), z))


def test_labels_reach_the_recipe_that_asks_and_belong_to_the_images():
    data = opened("digits").train
    rows = Rows(np.array([5, 900, 17]), np.arange(3), np.array([5, 900, 17]))
    similarity = LabeledViews(handwriting_views(8))
    raw = similarity.read(data, rows, RandomKey(0))
    x = similarity.view(raw, rows, RandomKey(0))
    assert x["label"].tolist() == data.labels[[5, 900, 17]].tolist()
    torch.testing.assert_close(x["v1"], handwriting_views(8).view({"image": data.read(rows.ids)}, rows, RandomKey(0))["v1"])
    assert similarity.read(data.drop_labels(), rows, RandomKey(0))["label"].tolist() == [-1, -1, -1]
    with pytest.raises(UsageError, match="the data have none"):
        similarity.count(data.drop_labels())
    with pytest.raises(UsageError, match="the data have none"):
        nearfar.fit("supcon", np.zeros((40, 8, 8), dtype=np.uint8), steps=1)


def test_few_labels_are_few_fixed_and_of_every_class():
    data = opened("digits").train
    similarity = LabeledViews(handwriting_views(8), samples_per_class=4)
    chosen = choose_samples_per_class(data, 4, RandomKey(0)("labelled"))
    assert similarity.count(data) == len(chosen) == 40
    assert np.bincount(data.labels[chosen]).tolist() == [4] * 10
    assert (chosen != choose_samples_per_class(data, 4, RandomKey(1)("labelled"))).any()
    rows = Rows(np.array([39, 0]), np.arange(2), np.array([39, 0]))
    raw = similarity.read(data, rows, RandomKey(0))
    assert raw["label"].tolist() == data.labels[chosen[[39, 0]]].tolist()
    torch.testing.assert_close(raw["of_views"]["image"], data.read(chosen[[39, 0]]))
    with pytest.raises(UsageError, match="per_class"):
        LabeledViews(handwriting_views(8), samples_per_class=0)


# --- corrected, weighted and mixed negatives ------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
def test_hard_negatives_against_the_published_code(beta):
    """A loop over rows, after the authors' listing: weights e^(beta s) of mean 1, the false share subtracted, the floor kept."""
    z, tau, eta = _two_views(), 0.5, 0.1
    rows, n, total = torch.cat([z["z0"], z["z1"]]), 6, 0.0
    floored = 0
    for i in range(2 * n):
        neg = [math.exp(float(rows[i] @ rows[j]) / tau) for j in range(2 * n) if j % n != i % n]
        pos = math.exp(float(rows[i] @ rows[(i + n) % (2 * n)]) / tau)
        weights = [e**beta for e in neg]
        reweighted = sum(w * e for w, e in zip(weights, neg, strict=True)) / (sum(weights) / len(weights))
        estimate = (reweighted - eta * len(neg) * pos) / (1 - eta)
        floored += estimate < len(neg) * math.exp(-1 / tau)
        total -= math.log(pos / (pos + max(estimate, len(neg) * math.exp(-1 / tau))))
    assert floored < 2 * n
    assert loss_of(made("hard-negative-robinson", hardness=beta, temperature=tau, false_negative_share=eta), z) == pytest.approx(
        total / (2 * n)
    )
    if beta == 0:
        assert loss_of(made("debiased-contrastive", temperature=tau, false_negative_share=eta), z) == pytest.approx(total / (2 * n))


def test_debiasing_by_nothing_is_simclr_and_by_much_meets_the_floor():
    z = _two_views()
    assert loss_of(made("debiased-contrastive", false_negative_share=0.0), z) == pytest.approx(loss_of(made("simclr"), z))
    same = {"z0": z["z0"], "z1": z["z0"]}
    expected = math.log(1 + 10 * math.exp(-2 / 0.5))  # positives at 1, all ten negatives as far as can be
    assert loss_of(made("debiased-contrastive", false_negative_share=0.9), same) == pytest.approx(expected)


def test_mochi_adds_mixtures_of_the_hardest_to_the_negatives():
    recipe = made("mochi", queue_size=40, hardest_keys=5, mixed_negatives=3, query_mixed_negatives=2, dim=4, temperature=0.2)
    queue = _unit(40, 4, seed=2)
    net = Net(queue=Net(rows=queue), mixes=torch.ones((), dtype=torch.float64))
    z = {"q": _unit(3, 4), "k": _unit(3, 4, seed=1), "slot": torch.tensor([7, 8, 11])}
    total = 0.0
    for i, slot in enumerate([7, 8, 11]):
        q = z["q"][i]
        hard = queue[(queue @ q).argsort(descending=True)[:5]]
        u, v = KEY("h").uniform(np.array([slot]), 3, 3)[0], KEY("h'").uniform(np.array([slot]), 2, 2)[0]
        mixed = []
        for a, b, alpha in u.T.tolist():
            first = int(a * 5)
            second = (first + 1 + int(b * 4)) % 5
            assert first != second
            mixed.append(F.normalize(alpha * hard[first] + (1 - alpha) * hard[second], dim=0))
        for a, b in v.T.tolist():
            mixed.append(F.normalize(b / 2 * q + (1 - b / 2) * hard[int(a * 5)], dim=0))
        assert len(mixed) == 5
        scores = torch.cat([(z["k"][i] @ q)[None], queue @ q, torch.stack(mixed) @ q]) / 0.2
        total += float(scores.logsumexp(0) - scores[0])
    assert loss_of(recipe, z, net) == pytest.approx(total / 3, rel=1e-6)


def test_mochi_is_moco_v2_until_it_begins_to_mix():
    z = {"q": _unit(3, 4), "k": _unit(3, 4, seed=1), "slot": torch.arange(3)}
    queue = Net(rows=_unit(40, 4, seed=2))
    on, off = (Net(queue=queue, mixes=torch.tensor(x, dtype=torch.float64)) for x in (1.0, 0.0))
    settings = {"queue_size": 40, "dim": 4}
    plain = loss_of(made("moco-v2", **settings), z, on)
    assert loss_of(made("mochi", **settings), z, off) == pytest.approx(plain)
    assert loss_of(made("mochi", **settings), z, on) > loss_of(made("mochi", query_mixed_negatives=0, **settings), z, on) > plain


def test_mochi_begins_where_it_is_told():
    session = tiny_session("mochi", batch_size=16)
    recipe, net = session.recipe, session.net
    z = {"k": torch.zeros(2, recipe.dim)}
    mixes = []
    for progress in (0.05, recipe.mixing_start_ratio, 0.9):
        recipe.update(net, z, progress)
        mixes.append(float(net.mixes))
    assert mixes == [0, 1, 1]


# --- instance features ----------------------------------------------------------------------------


def test_invariant_spreading_against_its_equation():
    f, f_hat = _unit(5, 4), _unit(5, 4, seed=1)
    prob = lambda i, of: math.exp(float(f[i] @ of) / 0.3) / math.fsum(math.exp(float(k @ of) / 0.3) for k in f)
    invariant = -math.fsum(math.log(prob(i, f_hat[i])) for i in range(5))
    spread = -math.fsum(math.log(1 - prob(i, f[j])) for i in range(5) for j in range(5) if j != i)
    found = made("invariant-spreading", temperature=0.3).objective(NOTHING, {"f": f, "f_hat": f_hat}, KEY)
    assert float(found["invariant"]) == pytest.approx(invariant / 5)
    assert float(found["spread"]) == pytest.approx(spread / 5)
    assert float(found["loss"]) == pytest.approx((invariant + spread) / 5)


def test_invariant_spreading_compares_with_the_image_itself():
    session = tiny_session("invariant-spreading", batch_size=16)
    rows = session.plan.get_rows(0)
    image = session.data.read(rows.ids)
    x = session.similarity().view({"image": image}, rows, session.rng_key)
    torch.testing.assert_close(x["v0"], image / 255)
    assert not torch.equal(x["v0"], x["v1"])


def test_w_mse_takes_all_pairs_of_views_in_the_same_sub_batches():
    recipe = made("w-mse", views_per_sample=3, sub_batch_size=8, splits_per_step=2, dim=3, covariance_shrinkage=0.01)
    z = {f"v{i}": _unit(16, 3, seed=i) for i in range(3)} | {"slot": torch.arange(100, 116)}
    losses = []
    for r in range(2):
        order = KEY("whiten", r).bits(z["slot"])[:, 0].argsort(stable=True)
        white = [torch.cat([F.normalize(whiten(z[f"v{i}"][part], 0.01), dim=1) for part in order.split(8)]) for i in range(3)]
        losses += [float((a - b).square().sum(1).mean()) for a, b in itertools.combinations(white, 2)]
    assert len(losses) == 6
    assert loss_of(recipe, z) == pytest.approx(sum(losses) / 6)


def test_w_mse_with_more_positives_makes_more_views_and_trains():
    trained = nearfar.fit("w-mse", preset="tiny", views_per_sample=4, steps=3, batch_size=64)
    assert len(trained.recipe.similarity(trained.net).pipelines) == 4
    assert all(math.isfinite(line["loss"]) for line in trained.metrics if "loss" in line)
    with pytest.raises(UsageError, match="--views-per-sample must be at least 2"):
        made("w-mse", views_per_sample=1)


def test_w_mse_cannot_collapse_where_plain_distances_do():
    """Views that are all but constant: their squared distance is nothing, and white they are as far apart as ever."""
    a, b = 1 + 1e-2 * torch.randn(64, 4, generator=torch.Generator().manual_seed(0)).double(), torch.ones(64, 4).double()
    b = b + 1e-2 * torch.randn(64, 4, generator=torch.Generator().manual_seed(1)).double()
    assert float((a - b).square().sum(1).mean()) < 1e-2
    assert loss_of(made("w-mse", sub_batch_size=64, covariance_shrinkage=0.0), {"v0": a, "v1": b, "slot": torch.arange(64)}) > 1


# --- jigsaw ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "size"), [(2, 8), (3, 9), (3, 11)])
def test_jigsaw_without_gaps_is_the_same_tiles_in_another_order(grid, size):
    x, slots = torch.arange(4 * 2 * size * size).view(4, 2, size, size).float(), torch.arange(4)
    shuffled = Jigsaw(grid)(x, slots, RandomKey(0))
    assert shuffled.shape == x.shape
    before, after = split_tiles(x, grid), split_tiles(shuffled, grid)
    orders = []
    for i in range(4):
        orders.append([next(s for s in range(grid**2) if torch.equal(before[i, s], tile)) for tile in after[i]])
        assert sorted(orders[-1]) == list(range(grid**2))
    assert len({tuple(order) for order in orders}) > 1
    whole = size // grid * grid
    assert not shuffled[:, :, whole:].any()
    assert not shuffled[:, :, :, whole:].any()


def test_all_orders_of_a_jigsaw_are_equally_frequent():
    x = torch.arange(4.0).view(1, 1, 2, 2).expand(4800, -1, -1, -1)
    orders = Jigsaw(2)(x, torch.arange(4800), RandomKey(3)).flatten(1).unique(dim=0, return_counts=True)
    assert len(orders[0]) == math.factorial(4)
    assert float(((orders[1] - 200) ** 2 / 200).sum()) < 49.7  # chi-square with 23 degrees of freedom, 0.1%


def test_tiles_are_cut_from_random_places_of_their_own_cells():
    size, grid, gap = 12, 2, 2
    x = torch.arange(float(size * size)).view(1, 1, size, size).expand(300, -1, -1, -1)
    found = split_tiles(Jigsaw(grid, gap)(x, torch.arange(300), RandomKey(1)), grid)[:, :, 0]
    assert found.shape == (300, 4, 4, 4)
    corner = found[:, :, 0, 0].long()
    torch.testing.assert_close(found, corner[:, :, None, None] + (torch.arange(4) + size * torch.arange(4)[:, None]).float())
    row, column = corner // size, corner % size
    assert set((row % 6).flatten().tolist()) == set((column % 6).flatten().tolist()) == {0, 1, 2}
    cells = (row // 6 * 2 + column // 6).sort(1).values
    assert (cells == torch.arange(4)).all()


def test_a_jigsaw_belongs_to_its_slot_and_mistakes_are_named():
    x, slots, op = torch.rand(6, 3, 9, 9, generator=torch.Generator().manual_seed(0)), torch.arange(40, 46), Jigsaw(3, 1)
    whole = op(x, slots, RandomKey(0))
    torch.testing.assert_close(op(x[2:4], slots[2:4], RandomKey(0)), whole[2:4])
    assert not torch.equal(op(x, slots + 6, RandomKey(0)), whole)
    torch.testing.assert_close(join_tiles(split_tiles(x, 3), 3), x)
    with pytest.raises(UsageError, match="no 3 x 3 cells"):
        Jigsaw(3, 4)(x, slots, RandomKey(0))
    with pytest.raises(UsageError, match="grid must be at least 1"):
        Jigsaw(0)


def test_pirl_against_its_equation():
    recipe = made("pirl", dim=4, temperature=0.4, jigsaw_weight=0.3, negatives=6)
    bank = _unit(9, 4, seed=5)
    z = {"f": _unit(3, 4), "g": _unit(3, 4, seed=1), "id": torch.tensor([4, 0, 7])}
    drawn = KEY("negatives").integers(np.arange(6), 9).tolist()
    assert set(drawn) & {4, 0, 7}, "an image's own entry should be drawn, for it must not be its negative"

    def nce(v: torch.Tensor, i: int) -> float:
        others = [math.exp(float(bank[j] @ v) / 0.4) for j in drawn if j != i]
        own = math.exp(float(bank[i] @ v) / 0.4)
        return -math.log(own / (own + sum(others))) - sum(math.log(1 - e / (own + sum(others))) for e in others)

    expected = [0.3 * nce(g, i) + 0.7 * nce(f, i) for f, g, i in zip(z["f"], z["g"], [4, 0, 7], strict=True)]
    net = tiny_session("pirl", batch_size=16).net
    net.bank.rows = bank
    assert loss_of(recipe, z, net) == pytest.approx(sum(expected) / 3)


def test_pirl_keeps_a_moving_average_of_what_it_saw_of_each_image():
    session = tiny_session("pirl", batch_size=16)
    bank = session.net.bank
    before = bank.rows.clone()
    torch.testing.assert_close(before.norm(dim=1), torch.ones(len(before)))
    z = {"f": 3 * torch.ones(2, session.recipe.dim), "id": torch.tensor([3, 8])}
    session.recipe.update(session.net, z, 0.5)
    f = F.normalize(z["f"], dim=1)
    torch.testing.assert_close(bank[z["id"]], F.normalize(before[[3, 8]] + f, dim=1))
    rest = torch.ones(len(before), dtype=torch.bool)
    rest[[3, 8]] = False
    assert torch.equal(bank.rows[rest], before[rest])


def test_pirl_encodes_tiles_one_by_one_and_their_order_matters():
    session = tiny_session("pirl", exact=True, batch_size=4)
    recipe, net = session.recipe, session.net.eval()
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    cut = split_tiles(x, 2)
    turned = join_tiles(cut.flip(1), 2)
    g, g_turned = (recipe.embed(net, {"v0": x, "v1": v, "id": torch.arange(2)}, KEY)["g"] for v in (x, turned))
    one_by_one = torch.stack([net.tile(net.encoder(cut[:, t])) for t in range(4)], 1)
    torch.testing.assert_close(g, net.g(one_by_one.flatten(1)))
    torch.testing.assert_close(g_turned, net.g(one_by_one.flip(1).flatten(1)))
    assert not torch.allclose(g, g_turned)


@pytest.mark.parametrize("size", [28, 32, 64, 224])
def test_pirl_shows_as_many_pixels_as_the_image_has(size):
    net = Net()
    net.sizes = {"size": size, "channels": 3}
    similarity = made("pirl").similarity(net)
    image = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    x = similarity.view({"image": image}, Rows(np.arange(2), np.arange(2), np.arange(2)), RandomKey(0))
    assert x["v0"].shape == x["v1"].shape == image.shape


# --- SimCLR v2 ------------------------------------------------------------------------------------


def test_simclr_v2_keeps_the_first_of_three_layers():
    net, x = tiny_session("simclr-v2", batch_size=16).net.eval(), torch.zeros(2, 1, 8, 8)
    recipe = made("simclr-v2")
    h, middle = recipe.encode(net, x), recipe.encode(net, x, "middle")
    first = net.middle[1]
    torch.testing.assert_close(middle, first[2](first[1](first[0](h))))
    linear = [m for part in (first, net.head) for m in part if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(h.shape[1],) * 2] * 2 + [(h.shape[1], recipe.dim)]
    assert len(recipe.embed(net.train(), {"v0": torch.zeros(3, 1, 8, 8), "v1": torch.ones(3, 1, 8, 8)}, KEY)["z0"]) == 3


def test_fine_tuning_sees_few_labels_and_learns_them():
    trained = nearfar.fit("simclr-v2-finetune", preset="tiny", labels_per_class=3, batch_size=30, steps=40, log_every=1)
    similarity = trained.recipe.similarity(trained.net)
    assert similarity.count(opened("digits").train) == 30
    accuracy = [line["accuracy"] for line in trained.metrics if "accuracy" in line]
    assert accuracy[-1] > 0.8 > 0.5 > accuracy[0]
    with pytest.raises(UsageError, match="no labels"):
        nearfar.fit("simclr-v2-finetune", np.zeros((40, 8, 8), dtype=np.uint8), steps=1)


def test_distillation_is_the_cross_entropy_of_two_softmaxes():
    student, teacher, tau = _unit(4, 3) * 3, _unit(4, 3, seed=1) * 3, 0.5
    total = 0.0
    for s, t in zip((student / tau).tolist(), (teacher / tau).tolist(), strict=True):
        p_teacher = [math.exp(x) / sum(map(math.exp, t)) for x in t]
        p_student = [math.exp(x) / sum(map(math.exp, s)) for x in s]
        total -= sum(p * math.log(q) for p, q in zip(p_teacher, p_student, strict=True))
    assert loss_of(made("simclr-v2-distil", temperature=tau), {"student": student, "teacher": teacher}) == pytest.approx(total / 4)


def test_a_teacher_learns_nothing_and_is_never_in_training():
    session = tiny_session("simclr-v2-distil", steps=4, batch_size=32)
    before = {k: v.clone() for k, v in session.net.teacher.state_dict().items()}
    nearfar.train.training_loop.train(session)
    assert session.net.classifier.training
    assert not any(m.training for m in session.net.teacher.modules())
    assert all(torch.equal(v, before[k]) for k, v in session.net.teacher.state_dict().items())


def test_the_three_phases_hand_on_what_they_learned(tmp_path, caplog):
    settings = {"preset": "tiny", "steps": 2, "batch_size": 32}
    first = nearfar.fit("simclr-v2", out=tmp_path / "1", **settings)
    second = nearfar.fit("simclr-v2-finetune", out=tmp_path / "2", init_from=str(tmp_path / "1"), **settings | {"lr": 1e-12})
    third = nearfar.fit("simclr-v2-distil", out=tmp_path / "3", init_from=str(tmp_path / "2"), **settings)
    assert "is random" not in caplog.text
    nearfar.fit("simclr-v2-distil", **settings)
    assert "without --init-from RUN its teacher is random" in caplog.text
    for ours, theirs in ((second.net.middle, first.net.middle), (third.net.teacher.module, second.net.classifier)):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q)


# --- BYOL -----------------------------------------------------------------------------------------


def momentum_of_the_paper(m: float, progress: float) -> float:
    """Section 3.2 of arXiv:2006.07733: tau = 1 - (1 - tau_base) (cos(pi k / K) + 1) / 2."""
    return 1 - (1 - m) * (math.cos(math.pi * progress) + 1) / 2


@pytest.mark.parametrize(("progress", "rate"), [(0.0, 0.9), (1 / 3, 0.925), (0.5, 0.95), (2 / 3, 0.975), (1.0, 1.0)])
def test_byols_momentum_rises_from_m_to_one(progress, rate):
    assert momentum_of_the_paper(0.9, progress) == pytest.approx(rate)
    net = tiny_session("byol", batch_size=8).net
    before = [p.clone() for p in net.target.parameters()]
    with torch.no_grad():
        for p in net.online.parameters():
            p.add_(1.0)
    made("byol", ema_momentum=0.9).update(net, {}, progress)
    for p, was, online in zip(net.target.parameters(), before, net.online.parameters(), strict=True):
        torch.testing.assert_close(p, rate * was + (1 - rate) * online)


def test_byols_target_follows_the_online_network_in_every_step():
    session = tiny_session("byol", batch_size=16, steps=4, lr=0.05, warmup_ratio=0.0)
    target = [p.clone() for p in session.net.target.parameters()]

    class Follow(Hook):
        def step(self, session, values, z):
            m = momentum_of_the_paper(session.recipe.ema_momentum, session.step / 4)
            for was, p, online in zip(target, session.net.target.parameters(), session.net.online.parameters(), strict=True):
                assert m == 1 or not torch.equal(p, was)
                was.mul_(m).add_((1 - m) * online.detach())
                torch.testing.assert_close(p, was)

    train(session, [Follow()])
    assert session.step == 4
