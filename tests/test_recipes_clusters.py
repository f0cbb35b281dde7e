"""k-means, and what is special to the methods that remember or cluster all samples: SwAV, DeepCluster, PCL, NPID."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import opened, tiny_session
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import RandomKey, RuntimeConfig, UsageError
from nearfar.core import kmeans as engine
from nearfar.core.kmeans import kmeans
from nearfar.data import load_images
from nearfar.losses import info_nce
from nearfar.recipes.vision.deepcluster import DeepCluster, extract_edges, pca_whiten
from nearfar.recipes.vision.instance_discrimination_npid import NPID
from nearfar.recipes.vision.pcl import PCL
from nearfar.recipes.vision.swav import SwAV
from nearfar.scores import Scores, dot
from nearfar.train.loader import StepDataset
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook, train

KEY = RandomKey(0)


def pixels() -> Tensor:
    images = opened("digits").train
    return images.read(np.arange(len(images))).float().flatten(1) / 255


def unit_rows(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def session_of(recipe, **changes) -> TrainingSession:
    """A session of the recipe with the given hyperparameters, on digits."""
    tiny = tiny_session(recipe_name(recipe), **changes)
    return TrainingSession(recipe, tiny.config, RuntimeConfig(), tiny.data, torch.device("cpu"))


def recipe_name(recipe) -> str:
    return {SwAV: "swav", DeepCluster: "deepcluster", PCL: "pcl", NPID: "instance-discrimination-npid"}[type(recipe)]


def first_views(session: TrainingSession) -> dict:
    similarity = session.similarity()
    steps = StepDataset(session.data, similarity, session.plan, session.rng_key("read"), None)
    (rows,), (raw,) = steps.get_row_chunks(0), steps[0]
    return similarity.view(raw, rows, KEY) | {"id": torch.as_tensor(rows.ids), "slot": torch.as_tensor(rows.slots)}


# --- k-means --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 10, 64])
def test_kmeans_is_as_good_as_scikit_learns(k):
    x = pixels()
    theirs = [KMeans(k, n_init=1, random_state=seed).fit(x.numpy()).inertia_ for seed in range(3)]
    ours = [float(kmeans(x, k, KEY(seed), max_iterations=100).inertia) for seed in range(3)]
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_kmeans_ends_at_a_fixed_point_whatever_the_blocks(monkeypatch):
    x = pixels()
    found = kmeans(x, 12, KEY, max_iterations=300)
    distance = torch.cdist(x, found.centers)
    assert torch.equal(found.cluster_ids, distance.argmin(1))
    torch.testing.assert_close(found.inertia, distance.amin(1).square().sum())
    for cluster in range(12):
        torch.testing.assert_close(found.centers[cluster], x[found.cluster_ids == cluster].mean(0))
    monkeypatch.setattr(engine, "DISTANCES_PER_BLOCK", 100 * 12)
    in_blocks = kmeans(x, 12, KEY, max_iterations=300)
    assert torch.equal(found.cluster_ids, in_blocks.cluster_ids)
    assert not torch.equal(found.cluster_ids, kmeans(x, 12, KEY("other"), max_iterations=300).cluster_ids)


def test_kmeans_finds_clusters_that_lie_apart():
    """k-means++ starts in every one of them; rows drawn uniformly would miss some of 20."""
    centres = 100 * unit_rows(20, 8)
    y = torch.arange(20).repeat(30)
    found = kmeans(centres[y] + unit_rows(600, 8, seed=1), 20, KEY)
    assert len(set(zip(y.tolist(), found.cluster_ids.tolist(), strict=True))) == 20


def test_a_cluster_without_rows_takes_half_of_the_largest():
    x = torch.cat([unit_rows(90, 4) + 10, unit_rows(10, 4) - 10])
    centres = torch.stack([x[:90].mean(0), x[90:].mean(0), torch.full((4,), 1e3)])
    sizes = torch.tensor([90.0, 10.0, 0.0])
    divided = engine._divide_largest(centres, sizes)
    torch.testing.assert_close(divided[[0, 2]].mean(0), centres[0])
    counts = torch.bincount(engine._assign(x, divided).cluster_ids, minlength=3)
    assert counts[1] == 10
    assert counts[0] > 20
    assert counts[2] > 20


def test_kmeans_of_equal_rows_and_of_too_few():
    same = kmeans(torch.ones(7, 3), 4, KEY)
    assert float(same.inertia) < 1e-4
    assert same.centers.isfinite().all()
    everyone = kmeans(unit_rows(9, 3), 9, KEY)
    assert sorted(everyone.cluster_ids.tolist()) == list(range(9))
    for k in (0, 10):
        with pytest.raises(UsageError, match="9 samples cannot form"):
            kmeans(unit_rows(9, 3), k, KEY)


# --- SwAV -----------------------------------------------------------------------------------------


def codes_by_hand(scores: np.ndarray, eps: float, rounds: int) -> np.ndarray:
    """Algorithm 1 of the paper's appendix, as printed: Q is (prototypes, batch)."""
    q = np.exp(scores.T.astype(np.float64) / eps)
    q /= q.sum()
    k, b = q.shape
    for _ in range(rounds):
        q *= (1 / k / q.sum(1))[:, None]
        q *= (1 / b / q.sum(0))[None]
    return (q / q.sum(0)).T


def swav_loss_by_hand(net, z: dict[str, Tensor], recipe: SwAV, with_queue: bool) -> float:
    views, c = [v.detach().numpy() for v in z.values()], net.prototypes.detach().numpy()
    total, count = 0.0, 0
    for s in (0, 1):
        rows = np.concatenate([views[s], net.queues[s].rows.numpy()]) if with_queue else views[s]
        q = codes_by_hand(rows @ c.T, recipe.sinkhorn_regularization, recipe.sinkhorn_iterations)[: len(views[s])]
        for t in range(len(views)):
            if t != s:
                logits = views[t] @ c.T / recipe.temperature
                log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
                total, count = total - (q * log_p).sum(1).mean(), count + 1
    return total / count


@pytest.mark.parametrize("progress", [0.05, 0.5])
def test_swav_predicts_swapped_codes_and_uses_the_queue_when_its_time_has_come(progress):
    recipe = SwAV(prototypes=12, queue_size=20, queue_start_ratio=0.1, prototype_freeze_ratio=0.0, dim=8, hidden_dim=16)
    net = session_of(recipe, batch_size=16).net
    net.progress.fill_(progress)
    z = {f"z{i}": unit_rows(16, 8, seed=i) for i in range(4)}
    loss = recipe.objective(net, z, KEY).detach()
    assert float(loss) == pytest.approx(swav_loss_by_hand(net, z, recipe, with_queue=progress > 0.1), rel=1e-5)
    assert float(loss) != pytest.approx(swav_loss_by_hand(net, z, recipe, with_queue=progress < 0.1), rel=1e-5)


def test_swavs_prototypes_are_unit_vectors_that_stay_until_they_are_let_go():
    recipe = SwAV(prototypes=12, queue_size=20, prototype_freeze_ratio=0.5, dim=8, hidden_dim=16)
    session = session_of(recipe, batch_size=16, steps=8)
    start, moved = session.net.prototypes.detach().clone(), []

    class Watch(Hook):
        def step(self, session, values, z):
            c = session.net.prototypes.detach()
            torch.testing.assert_close(c.norm(dim=1), torch.ones(12))
            moved.append(not torch.allclose(c, start, atol=1e-6))
            torch.testing.assert_close(session.net.queues[1].rows[(session.net.queues[1].head - 1) % 20], z["z1"][-1])

    train(session, [Watch()])
    assert moved == [False] * 4 + [True] * 4


def test_swav_without_a_queue_has_the_codes_of_the_batch():
    recipe = SwAV(prototypes=12, queue_size=0, queue_start_ratio=0.0, prototype_freeze_ratio=0.0, dim=8, hidden_dim=16)
    session = session_of(recipe, batch_size=16, steps=2)
    z = {f"z{i}": unit_rows(16, 8, seed=i) for i in range(2)}
    by_hand = swav_loss_by_hand(session.net, z, recipe, with_queue=False)
    assert float(recipe.objective(session.net, z, KEY).detach()) == pytest.approx(by_hand, rel=1e-5)
    train(session)
    assert len(session.net.queues[0]) == 0


def test_swavs_small_crops_are_encoded_apart_and_every_view_keeps_its_place(tmp_path):
    images = torch.randint(256, (40, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "photos.npy", images.numpy())
    recipe, config = SwAV(prototypes=12, queue_size=0, dim=8, hidden_dim=16, small_crop_size=6, small_crops=3), tiny_session("swav").config
    config = dataclasses.replace(config, data=str(tmp_path / "photos.npy"), batch_size=8, image_size=None)
    session = TrainingSession(recipe, config, RuntimeConfig(), load_images(config.data).train, torch.device("cpu"))
    x = first_views(session)
    assert [x[f"v{i}"].shape[-1] for i in range(5)] == [16, 16, 6, 6, 6]
    session.net.eval()  # batch statistics would tie the views together
    z = recipe.embed(session.net, x, KEY)
    for i in range(5):
        alone = F.normalize(session.net.head(session.net.encoder(x[f"v{i}"])), dim=1)
        torch.testing.assert_close(z[f"z{i}"], alone, rtol=1e-4, atol=1e-5)
    train(session_like(session, steps=2))


def session_like(session: TrainingSession, **changes) -> TrainingSession:
    return TrainingSession(session.recipe, dataclasses.replace(session.config, **changes), RuntimeConfig(), session.data, session.device)


# --- DeepCluster ----------------------------------------------------------------------------------


def test_whitened_components_are_scikit_learns():
    x = torch.randn(200, 10, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.arange(1.0, 11))
    theirs = torch.as_tensor(PCA(4, whiten=True, svd_solver="full").fit_transform(x.numpy())) * math.sqrt(200 / 199)
    torch.testing.assert_close(pca_whiten(x, 4).abs(), theirs.abs(), rtol=1e-3, atol=1e-3)
    flat = torch.cat([x, torch.zeros(200, 5)], 1)
    assert pca_whiten(flat, 15).isfinite().all()
    assert pca_whiten(torch.ones(6, 3), 3).abs().sum() == 0


def test_deepclusters_refresh_labels_all_samples_and_forgets_the_classifier():
    session = session_of(DeepCluster(clusters=20, pca_dim=16, sobel=False), batch_size=128, steps=12)
    net = session.net
    session.refresh(0)
    labels, weight = net.labels.rows.clone(), net.classifier.weight.clone()
    features = F.normalize(pca_whiten(session.encode_all(), 16), dim=1)
    assert torch.equal(labels, kmeans(features, 20, session.rng_key("refresh", 0)("kmeans")).cluster_ids)
    assert torch.equal(net.members, torch.bincount(labels, minlength=20))
    assert int(net.members.min()) > 0
    train(session)  # 11 steps an epoch: the last step belongs to the second clustering
    assert not torch.equal(net.labels.rows, labels)
    assert not torch.equal(net.classifier.weight, weight)
    (optimizer,) = session.optimizers
    assert {int(optimizer.state[p]["step"]) for p in net.classifier.parameters()} == {1}
    assert {int(optimizer.state[p]["step"]) for p in net.encoder.parameters()} == {12}
    session.refresh(0)
    assert torch.equal(net.classifier.weight, weight), "the classifier that begins anew depends on the key alone"


def test_deepclusters_classes_weigh_the_same_whatever_their_size():
    """As if samples were drawn uniformly over clusters: each cluster's mean loss counts once."""
    session = session_of(DeepCluster(clusters=3, pca_dim=8, sobel=False), batch_size=128)
    labels = torch.tensor([0] * 90 + [1] * 9 + [2])
    session.net.labels.put(torch.arange(100), labels)
    session.net.members.copy_(torch.bincount(labels))
    z = {"logits": 3 * unit_rows(100, 3), "id": torch.arange(100)}
    row = F.cross_entropy(z["logits"], labels, reduction="none")
    by_class = torch.stack([row[labels == c].mean() for c in range(3)]).mean()
    torch.testing.assert_close(session.recipe.objective(session.net, z, KEY), by_class)


def test_deepcluster_sees_edges_in_training_and_in_evaluation():
    recipe = DeepCluster(clusters=20, pca_dim=16, sobel=True)
    session = session_of(recipe, batch_size=16)
    image = session.data.read(np.arange(4))
    net = session.net.eval()
    torch.testing.assert_close(recipe.encode(net, image), net.encoder(extract_edges(image.float() / 255)))
    torch.testing.assert_close(recipe.encode(net, image), recipe.encode(net, image.float() / 255))
    brighter = (image // 2 + 100, image // 2)
    torch.testing.assert_close(recipe.encode(net, brighter[0]), recipe.encode(net, brighter[1]), rtol=1e-3, atol=1e-4)
    with pytest.raises(UsageError, match="cannot form 5000 clusters"):
        session_of(DeepCluster(clusters=5000), batch_size=16)


# --- PCL ------------------------------------------------------------------------------------------


def pcl_session(**changes) -> TrainingSession:
    return session_of(PCL(queue_size=64, clusters=(6, 15), cluster_from_epoch=1, dim=16), **{"batch_size": 32, **changes})


def test_pcl_without_prototypes_is_moco_v2_and_a_constant():
    session = pcl_session()
    z = {"q": unit_rows(32, 16).requires_grad_(), "k": unit_rows(32, 16, seed=1), "id": torch.arange(32)}
    session.refresh(0)
    loss = session.recipe.objective(session.net, z, KEY)
    moco = info_nce(Scores.from_matched(z["q"], z["k"], negatives=session.net.queue.rows, score=dot) / session.recipe.temperature).mean()
    torch.testing.assert_close(loss, moco + (math.log(6) + math.log(15)) / 2)
    torch.testing.assert_close(*(torch.autograd.grad(value, z["q"])[0] for value in (loss, moco)), rtol=1e-4, atol=1e-7)


def test_pcls_e_step_clusters_momentum_features_and_measures_their_concentration():
    session = pcl_session()
    net, tau, alpha = session.net, session.recipe.temperature, session.recipe.concentration_smoothing
    with torch.no_grad():
        for p in net.query.parameters():
            p.add_(0.1)  # the queries' tower must not matter
    session.refresh(1)
    v = session.encode_all("key")
    assert net.key.training
    for m, k in enumerate((6, 15)):
        at, c = net.labels[m].rows, net.prototypes[m].rows
        torch.testing.assert_close(c.norm(dim=1), torch.ones(k))
        phi = []
        for j in range(k):
            rows = v[at == j]
            centre = rows.mean(0)
            torch.testing.assert_close(c[j], centre / centre.norm(), rtol=0.02, atol=0.02)
            phi.append((rows - centre).norm(dim=1).sum() / (len(rows) * math.log(len(rows) + alpha)))
        phi = torch.stack(phi)
        phi = phi.clamp(phi.quantile(0.1), phi.quantile(0.9))
        torch.testing.assert_close(net.phi[m].rows, tau * phi / phi.mean(), rtol=0.05, atol=1e-4)


def test_pcls_m_step_is_proto_nce():
    session = pcl_session()
    net = session.net
    session.refresh(1)
    z = {"q": unit_rows(8, 16), "k": unit_rows(8, 16, seed=1), "id": torch.arange(8)}
    queue, total = net.queue.rows, 0.0
    for i in range(8):
        positive, negative = z["q"][i] @ z["k"][i] / session.recipe.temperature, queue @ z["q"][i] / session.recipe.temperature
        total -= float(positive - torch.logsumexp(torch.cat([positive[None], negative]), 0))
        for c, phi, at in zip(net.prototypes, net.phi, net.labels, strict=True):
            scores = c.rows @ z["q"][i] / phi.rows
            total -= float(scores[at.rows[i]] - torch.logsumexp(scores, 0)) / 2
    assert float(session.recipe.objective(net, z, KEY)) == pytest.approx(total / 8, rel=1e-4)


def test_pcls_clusters_come_in_with_their_epoch_and_move_with_the_features():
    session = pcl_session(batch_size=359, steps=12)  # 4 steps an epoch
    seen = []

    class Watch(Hook):
        def step(self, session, values, z):
            seen.append(session.net.prototypes[0].rows.clone())

    train(session, [Watch()])
    assert all(not rows.any() for rows in seen[:4])
    assert torch.equal(seen[4], seen[7])
    assert seen[4].any()
    assert not torch.equal(seen[7], seen[8])


# --- instance discrimination ----------------------------------------------------------------------


def test_npid_tells_every_sample_from_all_others_in_the_bank():
    session = session_of(NPID(dim=16, proximal_weight=0.0), batch_size=16)
    bank = session.net.bank.rows
    torch.testing.assert_close(bank.norm(dim=1), torch.ones(len(bank)))
    z = {"f": unit_rows(5, 16), "id": torch.tensor([3, 1, 4, 1000, 5])}
    by_hand = F.cross_entropy(z["f"] @ bank.T / session.recipe.temperature, z["id"])
    torch.testing.assert_close(session.recipe.objective(session.net, z, KEY), by_hand)


def test_npids_noise_contrast_is_the_binary_one():
    m = 50
    session = session_of(NPID(dim=16, negatives=m, proximal_weight=0.0), batch_size=16)
    bank, tau = session.net.bank.rows, session.recipe.temperature
    n = len(bank)
    z = {"f": unit_rows(5, 16), "id": torch.tensor([3, 1, 4, 1000, 5])}
    drawn = bank[KEY("noise").integers(torch.arange(m), n)]
    partition = n * float((z["f"] @ drawn.T / tau).exp().mean())
    p = lambda v, f: math.exp(float(v @ f) / tau) / partition
    total = 0.0
    for f, i in zip(z["f"], z["id"], strict=True):
        total -= math.log(p(bank[i], f) / (p(bank[i], f) + m / n))
        total -= sum(math.log(1 - p(v, f) / (p(v, f) + m / n)) for v in drawn)
    assert float(session.recipe.objective(session.net, z, KEY)) == pytest.approx(total / 5, rel=1e-4)
    assert session.recipe.objective(session.net, z, KEY("other")) != session.recipe.objective(session.net, z, KEY)


def test_npids_partition_function_gets_no_gradient():
    """By hand: the derivatives of the two logarithms with respect to the scores, with Z held constant."""
    m = 50
    session = session_of(NPID(dim=16, negatives=m, proximal_weight=0.0), batch_size=16)
    bank, tau = session.net.bank.rows.double(), session.recipe.temperature
    n = len(bank)
    f, ids = unit_rows(5, 16).requires_grad_(), torch.tensor([3, 1, 4, 1000, 5])
    (found,) = torch.autograd.grad(session.recipe.objective(session.net, {"f": f, "id": ids}, KEY), f)
    drawn = bank[KEY("noise").integers(torch.arange(m), n)]
    partition = n * float((f.detach().double() @ drawn.T / tau).exp().mean())
    expected = torch.zeros(5, 16, dtype=torch.float64)
    for row, (v, i) in enumerate(zip(f.detach().double(), ids, strict=True)):
        posterior = lambda u, v=v: 1 / (1 + m / n * partition / math.exp(float(u @ v) / tau))
        along = (posterior(bank[i]) - 1) * bank[i] + sum(posterior(u) * u for u in drawn)
        expected[row] = along / tau / 5
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)


def test_npids_proximal_term_is_nothing_for_a_sample_that_did_not_move():
    ids = torch.tensor([7, 2, 9])
    plain, held = (session_of(NPID(dim=16, proximal_weight=lam), batch_size=16) for lam in (0.0, 2.0))
    there = {"f": plain.net.bank[ids], "id": ids}
    torch.testing.assert_close(held.recipe.objective(held.net, there, KEY), plain.recipe.objective(plain.net, there, KEY))
    away = {"f": unit_rows(3, 16), "id": ids}
    extra = held.recipe.objective(held.net, away, KEY) - plain.recipe.objective(plain.net, away, KEY)
    torch.testing.assert_close(extra, 2 * (away["f"] - plain.net.bank[ids]).square().sum(1).mean())


def test_npids_bank_remembers_the_batch_and_nobody_else():
    session = session_of(NPID(dim=16, ema_momentum=0.25), batch_size=16)
    before, ids, f = session.net.bank.rows.clone(), torch.tensor([7, 2, 9]), unit_rows(3, 16)
    session.recipe.update(session.net, {"f": f, "id": ids}, 0.5)
    torch.testing.assert_close(session.net.bank[ids], F.normalize(0.25 * before[ids] + 0.75 * f, dim=1))
    others = torch.ones(len(before), dtype=torch.bool).index_fill(0, ids, False)
    assert torch.equal(session.net.bank[others], before[others])
