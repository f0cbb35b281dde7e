"""Supervised metric learning: batches by class, each objective against a loop over the batch, and what training does to distances."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import opened, tiny_session
from image_files import save
from PIL import Image
from torch.nn import functional as F

import nearfar
from nearfar import recipes
from nearfar.core import Net, Plan, RandomKey, Recipe, Rows, UsageError
from nearfar.data import load_images
from nearfar.data.images import image_folder as folder_module
from nearfar.evaluate.verification import equal_error_rate, recall_at_1
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, cosine, euclidean
from nearfar.similarity import handwriting_views
from nearfar.similarity.augment import ImageViews
from nearfar.similarity.class_balanced import ClassBalancedViews

METHODS = [name for name in recipes.list_methods() if issubclass(recipes.load_method(name).recipe_class, MetricLearning)]
ON_THE_SPHERE = {"facenet", "sampling-matters-wu2017"}
KEY = RandomKey(0)("objective", 0)
ONE_VIEW = ImageViews(handwriting_views(4).pipelines[:1])
LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 1])


def pictures(*sizes: int):
    """Classes of these sizes, one after the other; each picture is gray in a shade of its own."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    shades = np.arange(len(labels), dtype=np.uint8)
    data = load_images((np.broadcast_to(shades[:, None, None], (len(labels), 4, 4)).copy(), labels), test_ids=[]).train
    assert data.labels.tolist() == labels.tolist()
    return data


def step_of(data, samples_per_class: int, batch_size: int, step: int = 0, rng_key: RandomKey = KEY) -> np.ndarray:
    """The samples of a step, told by their shades."""
    rows = Plan(len(data), batch_size, RandomKey(9)).get_rows(step)
    raw = ClassBalancedViews(ONE_VIEW, samples_per_class).read(data, rows, rng_key)
    samples = raw["of_views"]["image"][:, 0, 0, 0].long().numpy()
    assert raw["label"].tolist() == data.labels[samples].tolist()
    return samples


# --- batches by class -----------------------------------------------------------------------------


def test_methods_are_found():
    wanted = {"hadsell-drlim", "facenet", "lifted-structure", "npair-sohn", "hermans-batch-hard", "sampling-matters-wu2017"}
    assert wanted <= set(METHODS)


def test_each_k_rows_are_one_class_and_no_class_or_sample_comes_twice():
    data = pictures(*[5] * 12)
    for step in range(5):
        samples = step_of(data, samples_per_class=4, batch_size=30, step=step)
        classes = data.labels[samples]
        groups = [classes[i : i + 4].tolist() for i in range(0, 30, 4)]
        assert [len(set(g)) for g in groups] == [1] * 8
        assert len(groups[-1]) == 2, "the last class has what is left of the batch"
        assert len({g[0] for g in groups}) == 8
        assert len(set(samples.tolist())) == 30


def test_what_is_drawn_belongs_to_the_place_in_the_step():
    data, similarity = pictures(*[6] * 8), ClassBalancedViews(ONE_VIEW, 3)
    rows = Plan(len(data), 20, RandomKey(9)).get_rows(3)
    whole = similarity.view(similarity.read(data, rows, KEY), rows, KEY)
    for part in (rows[:1], rows[4:11], *rows.split(7), rows.select_rank_share(1, 2)):
        found, at = similarity.view(similarity.read(data, part, KEY), part, KEY), slice(part.slots[0] - 60, part.slots[-1] - 59)
        assert found["label"].tolist() == whole["label"][at].tolist()
        torch.testing.assert_close(found["v0"], whole["v0"][at])
    again = pictures(*[6] * 8)
    assert step_of(again, 3, 20, 3).tolist() == step_of(data, 3, 20, 3).tolist()
    assert step_of(data, 3, 20, 1).tolist() != step_of(data, 3, 20, 3).tolist()
    assert step_of(data, 3, 20, 3, RandomKey(1)).tolist() != step_of(data, 3, 20, 3).tolist()


def test_large_and_small_classes_are_drawn_equally_often_and_their_samples_too():
    data = pictures(60, 4, 12, 30, 5)
    drawn = np.concatenate([step_of(data, samples_per_class=2, batch_size=4, step=step) for step in range(600)])
    classes = np.bincount(data.labels[drawn]) / 2
    assert classes == pytest.approx(np.full(5, 240), abs=5 * math.sqrt(600 * 0.4 * 0.6))
    in_first = np.bincount(drawn, minlength=111)[:60]
    assert ((in_first - 8) ** 2 / 8).sum() < 98.3  # chi-square with 59 degrees of freedom, 0.1%


def test_a_small_class_shows_its_samples_again_in_other_views():
    data = pictures(2, 9)
    similarity, rows = ClassBalancedViews(ONE_VIEW, 5), Plan(11, 10, RandomKey(9)).get_rows(0)
    raw = similarity.read(data, rows, KEY)
    small = raw["label"] == 0
    assert torch.bincount(raw["of_views"]["image"][small][:, 0, 0, 0].long()).sort().values.tolist() == [2, 3]
    noisy = raw | {"of_views": {"image": torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).repeat(10, 1, 1, 1)}}
    views = similarity.view(noisy, rows, KEY)["v0"].flatten(1)
    assert len(views.unique(dim=0)) == 10


def test_more_groups_than_classes_take_further_samples():
    data = pictures(8, 8)
    samples = step_of(data, samples_per_class=3, batch_size=12)
    assert np.bincount(data.labels[samples]).tolist() == [6, 6]
    assert len(set(samples.tolist())) == 12


def test_images_in_files_are_cut_and_keep_their_labels(tmp_path, monkeypatch):
    shades = {"a": 40, "b": 120, "c": 220}
    for name, shade in shades.items():
        for i in range(3):
            save(Image.new("RGB", (20 + i, 24), (shade, shade, shade)), tmp_path / name / f"{i}.png")
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 0)
    data = load_images(tmp_path, image_size=16, test_ids=[]).train
    net = Net()
    net.sizes = data.sizes()
    similarity, rows = (
        recipes.load_method("facenet").recipe_class(samples_per_class=2).similarity(net),
        Plan(9, 6, RandomKey(9)).get_rows(0),
    )
    raw = similarity.read(data, rows, KEY)
    assert raw["of_views"].keys() == {"v0"}, "windows are cut as files are read"
    x = similarity.view(raw, rows, KEY)
    assert (x["v0"].mean((1, 2, 3)) * 255).round().tolist() == [list(shades.values())[y] for y in x["label"]]


def test_mistakes_are_named():
    data = pictures(5, 5)
    with pytest.raises(UsageError, match="--samples-per-class must be at least 2"):
        ClassBalancedViews(ONE_VIEW, 1)
    with pytest.raises(UsageError, match="only one class"):
        ClassBalancedViews(ONE_VIEW, 2).count(pictures(9))
    with pytest.raises(UsageError, match="the data have none"):
        ClassBalancedViews(ONE_VIEW, 2).count(data.drop_labels())
    with pytest.raises(UsageError, match=r"a batch of 4 holds only one class of --samples-per-class 4.* larger --batch-size"):
        nearfar.fit("facenet", data="digits", batch_size=4, steps=1)
    with pytest.raises(UsageError, match="--samples-per-class"):
        recipes.load_method("npair-sohn").recipe_class(samples_per_class=4)
    rows = Rows(np.arange(3), np.arange(3), np.arange(3))
    assert ClassBalancedViews(ONE_VIEW, 2).read(data.drop_labels(), rows, KEY)["label"].tolist() == [-1] * 3


# --- objectives against loops ---------------------------------------------------------------------


def batch(sphere: bool = False) -> dict[str, torch.Tensor]:
    z = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 2
    return {"z": F.normalize(z, dim=1) if sphere else z, "y": LABELS, "slot": torch.arange(100, 112)}


def distances(z: torch.Tensor) -> list[list[float]]:
    return [[math.dist(a, b) for b in z.tolist()] for a in z.tolist()]


def others(i: int, same: bool) -> list[int]:
    return [j for j in range(12) if j != i and (int(LABELS[j]) == int(LABELS[i])) is same]


def made(name: str, **settings) -> Recipe:
    return dataclasses.replace(recipes.load_method(name).recipe_class(), **settings)


def loss_of(recipe: Recipe, z: dict[str, torch.Tensor], net: Net | None = None) -> float:
    found = recipe.objective(net or Net(), z, KEY)
    return float(found["loss"] if isinstance(found, dict) else found)


def test_drlim_halves_squares_on_either_side_of_the_margin():
    z, m = batch(), 1.5
    D, total = distances(z["z"]), 0.0
    for i in range(12):
        total += sum(D[i][j] ** 2 / 2 for j in others(i, True)) + sum(max(0, m - D[i][j]) ** 2 / 2 for j in others(i, False))
    assert any(D[i][j] > m for i in range(12) for j in others(i, False)), "some are beyond the margin"
    assert loss_of(made("hadsell-drlim", margin=m), z) == pytest.approx(total / (12 * 11))


def test_facenet_takes_the_nearest_negative_beyond_each_positive():
    z, alpha = batch(sphere=True), 0.3
    D, terms, without = distances(z["z"]), [], 0
    for a in range(12):
        for p in others(a, True):
            beyond = [D[a][n] ** 2 for n in others(a, False) if D[a][p] ** 2 < D[a][n] ** 2 < D[a][p] ** 2 + alpha]
            without += not beyond
            terms += [D[a][p] ** 2 - min(beyond) + alpha] if beyond else []
    assert without, "some pairs should have no semi-hard negative"
    assert loss_of(made("facenet", margin=alpha), z) == pytest.approx(sum(terms) / len(terms))


@pytest.mark.parametrize("soft", [True, False])
def test_batch_hard_is_the_hardest_triplet_of_each_anchor(soft):
    z, D = batch(), distances(batch()["z"])
    gaps = [max(D[a][p] for p in others(a, True)) - min(D[a][n] for n in others(a, False)) for a in range(12)]
    expected = [math.log1p(math.exp(g)) if soft else max(0, 0.4 + g) for g in gaps]
    assert loss_of(made("hermans-batch-hard", soft_margin=soft, margin=0.4), z) == pytest.approx(sum(expected) / 12)


def test_lifted_structure_sets_each_pair_against_the_negatives_of_both_ends():
    z, alpha = batch(), 0.1
    D, squares = distances(z["z"]), []
    for i in range(12):
        for j in (j for j in others(i, True) if j > i):
            negatives = [math.exp(alpha - D[end][k]) for end in (i, j) for k in others(end, False)]
            squares.append(max(0, D[i][j] + math.log(sum(negatives))) ** 2)
    assert loss_of(made("lifted-structure", margin=alpha), z) == pytest.approx(sum(squares) / (2 * len(squares)))


def test_n_pairs_are_consecutive_rows_and_one_positive_each():
    rows, y = batch()["z"][:11], [0, 0, 1, 1, 2, 2, 3, 3, 1, 1, 2]  # class 1 twice, and one row left over
    total = 0.0
    for i in range(0, 10, 2):
        others = [j for j in range(0, 10, 2) if y[j] != y[i]]
        total += math.log1p(sum(math.exp(float(rows[i] @ rows[j + 1] - rows[i] @ rows[i + 1])) for j in others))
    squares = sum(float(f @ f) for f in rows[:10])
    z = {"z": rows, "y": torch.tensor(y), "slot": torch.arange(11)}
    assert loss_of(made("npair-sohn", norm_penalty_weight=0.3), z) == pytest.approx(total / 5 + 0.3 * squares / 10)
    longer = made("npair-sohn").objective(Net(), z | {"z": 2 * rows}, KEY)
    assert float(longer["squared_norm"]) == pytest.approx(4 * squares / 10)


@pytest.mark.parametrize("sampling", ["distance", "uniform", "semi-hard"])
def test_sampling_matters_has_a_boundary_for_each_class_and_as_many_negatives_as_positives(sampling):
    z, recipe = (
        batch(sphere=True),
        made("sampling-matters-wu2017", samples_per_class=3, margin=0.25, boundary_weight=0.1, sampling=sampling),
    )
    beta = torch.tensor([0.9, 1.0, 1.2, 1.3], dtype=torch.float64)
    D, terms = distances(z["z"]), []
    columns = recipe.draw_negatives(Scores.from_labels(z["z"], LABELS, score=euclidean), z["slot"], KEY).tolist()
    for i in range(12):
        drawn, boundary = [j for j in columns[i] if j >= 0], float(beta[LABELS[i]])
        assert set(drawn) <= set(others(i, False))
        if sampling == "semi-hard":
            farthest = max(D[i][p] for p in others(i, True))
            assert drawn == sorted((j for j in others(i, False) if D[i][j] > farthest), key=lambda j: D[i][j])[:2]
        else:
            assert len(set(drawn)) == 2
        terms += [0.25 + D[i][p] - boundary for p in others(i, True)] + [0.25 - D[i][n] + boundary for n in drawn]
    active = [t for t in terms if t > 0]
    assert len(active) < len(terms)
    expected = sum(active) / len(active) + 0.1 * float(beta[LABELS].mean())
    assert loss_of(recipe, z, Net(beta=beta)) == pytest.approx(expected)


# --- what training does ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_classes_come_nearer_together_in_new_samples(name):
    """The mean distance within classes over that between classes, on the test split. Batch hard is slow at first: it shrinks all."""
    trained = nearfar.fit(name, preset="tiny", steps=30, batch_size=64)
    test = opened("digits").test
    same = torch.from_numpy(test.labels[:, None] == test.labels)

    def within_over_between(model) -> float:
        z = model.encode(test)
        D = torch.cdist(z, z)
        return float(D[same].mean() / D[~same].mean())

    assert within_over_between(trained) < (0.95 if name == "hermans-batch-hard" else 0.85) * within_over_between(trained.build_untrained())


@pytest.mark.parametrize("name", METHODS)
def test_the_embedding_is_what_is_encoded(name):
    session = tiny_session(name, batch_size=16)
    recipe, net = session.recipe, session.net.eval()
    x = torch.arange(3 * 64, dtype=torch.uint8).view(3, 1, 8, 8)
    z, h = recipe.encode(net, x), recipe.encode(net, x, "trunk")
    seen = {"v0": x / 255, "label": torch.zeros(3, dtype=torch.long), "slot": torch.arange(3), "id": torch.arange(3)}
    torch.testing.assert_close(z, recipe.embed(net, seen, KEY)["z"])
    assert z.shape == (3, recipe.dim)
    torch.testing.assert_close(h, net.encoder(x))
    torch.testing.assert_close(z, net.head(h))
    assert torch.allclose(z.norm(dim=1), torch.ones(3)) == (name in ON_THE_SPHERE)


# --- how it is measured ---------------------------------------------------------------------------


def test_recall_at_1_leaves_one_out_and_knows_its_distance():
    x = torch.tensor([[1.0, 0.0], [1.1, 0.0], [0.0, 2.0], [0.0, 3.1], [5.0, 0.1], [9.0, 9.0]])
    y = torch.tensor([0, 0, 1, 1, 2, 3])
    assert recall_at_1(x, y, euclidean) == 1.0  # classes of one are asked for by nobody
    below = torch.tensor([[0.0, 1.9]])  # of the last class, and nearer to the third than the fourth is
    assert recall_at_1(torch.cat([x, below]), torch.cat([y, torch.tensor([3])]), euclidean) == pytest.approx(3 / 6)
    along = torch.tensor([[1.0, 0.0], [9.0, 0.1], [9.0, 3.0], [1.0, 0.3]])
    assert recall_at_1(along, torch.tensor([0, 0, 1, 1]), cosine) == 1.0
    assert recall_at_1(along, torch.tensor([0, 0, 1, 1]), euclidean) == 0.0
    with pytest.raises(UsageError, match="no class has two"):
        recall_at_1(x, torch.arange(6))


def test_equal_error_rate_against_every_threshold():
    generator = torch.Generator().manual_seed(0)
    same = torch.rand(4000, generator=generator) < 0.3
    scores = torch.randn(4000, generator=generator) + 1.5 * same
    worst = min(max(float((scores[~same] >= t).double().mean()), float((scores[same] < t).double().mean())) for t in scores)
    assert equal_error_rate(scores, same) == pytest.approx(worst, abs=2e-3)
    assert equal_error_rate(scores, same) == pytest.approx(0.2266, abs=0.03)  # two normals 1.5 apart: Phi(-0.75)
    assert equal_error_rate(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([True, True, False, False])) == 0.0
    assert equal_error_rate(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([False, False, True, True])) == 1.0
    assert equal_error_rate(torch.zeros(5), torch.tensor([True, False, False, True, False])) == pytest.approx(0.5)
    with pytest.raises(UsageError, match="pairs of different classes"):
        equal_error_rate(torch.zeros(3), torch.ones(3, dtype=torch.bool))
