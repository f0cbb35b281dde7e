"""SCARF: the corruption against a loop, the distribution of its values, and the loss of the paper in float64."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

import nearfar
from nearfar.core import Net, RandomKey, UsageError
from nearfar.core.plan import Rows
from nearfar.data.table.load import load_tables
from nearfar.recipes.table.scarf import SCARF, paper, reported
from nearfar.similarity.table import CorruptedRows


def rows_of(n: int, start: int = 0) -> Rows:
    ids = np.arange(n)
    return Rows(ids, ids + start, ids)


def drawn(data, n: int, corruption: float = 0.6, start: int = 0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, corrupted rows and the mask of corrupted features."""
    similarity, rows, rng_key = CorruptedRows(data.num_features, corruption), rows_of(n, start), RandomKey(seed)
    views = similarity.view(similarity.read(data, rows, rng_key("read")), rows, rng_key("view"))
    mask = similarity.draw_corrupted_features(torch.as_tensor(rows.slots), rng_key("view"))
    return views["v0"].numpy(), views["v1"].numpy(), mask.numpy()


def read_donors(data, n: int, seed: int) -> np.ndarray:
    """Return the values of other rows that a corruption may use."""
    return CorruptedRows(data.num_features).read(data, rows_of(n), RandomKey(seed)("read"))["drawn"].numpy()


def distinct_table(n: int, f: int):
    """A table in which every value names its row and column."""
    return load_tables((np.arange(n)[:, None] * f + np.arange(f)).astype(np.float32), test_ids=[]).train


@pytest.mark.parametrize("corruption", [0.01, 0.1, 0.29, 0.3, 0.6, 0.7, 0.99])
@pytest.mark.parametrize("f", [4, 10, 100])
def test_the_floor_of_the_share_is_replaced_at_least_one_feature(f, corruption):
    expected = max(1, math.floor(Fraction(str(corruption)) * f))
    first, second, mask = drawn(distinct_table(50, f), 50, corruption)
    assert (mask.sum(1) == expected).all()
    assert not (first != second)[~mask].any()


def test_corrupted_views_agree_with_a_loop_over_rows_and_features():
    n, f = 30, 7
    data = distinct_table(n, f)
    rows, similarity = rows_of(n, start=1000), CorruptedRows(f, 0.6)
    first, second, _ = drawn(data, n, start=1000)
    for i in range(n):
        slot = rows.slots[i : i + 1]
        order = RandomKey(0)("view")("corrupted").uniform(slot, f)[0]
        donor = RandomKey(0)("read")("donor").integers(slot, n, f)[0]
        replaced = set(np.argsort(order)[: similarity.num_corrupted].tolist())
        for j in range(f):
            source = donor[j] if j in replaced else i
            assert second[i, j] == source * f + j
            assert first[i, j] == i * f + j


def test_views_of_a_row_depend_on_its_slot_alone():
    data, similarity, rng_key = distinct_table(40, 9), CorruptedRows(9), RandomKey(3)
    whole = rows_of(40)
    part = whole[10:25]
    for rows in (whole, part):
        raw = similarity.read(data, rows, rng_key)
        assert raw["drawn"].shape == (len(rows), 9)
    views = [similarity.view(similarity.read(data, rows, rng_key), rows, rng_key)["v1"] for rows in (whole, part)]
    assert torch.equal(views[0][10:25], views[1])
    again = Rows(whole.ids, whole.slots + 40, whole.batch_ids)
    assert not torch.equal(views[0], similarity.view(similarity.read(data, again, rng_key), again, rng_key)["v1"])


def test_values_come_from_training_rows_only():
    table = np.arange(200, dtype=np.float32)[:, None] * np.ones(5, dtype=np.float32)
    splits = load_tables(table)
    _, second, _ = drawn(splits.train, len(splits.train), corruption=0.8)
    assert set(second.ravel()) <= set(splits.train.ids.astype(np.float32))
    assert len(set(second.ravel())) > 150


def test_replaced_values_follow_the_marginal_of_their_column():
    data = load_tables("wine", test_ids=[]).train
    similarity, known = CorruptedRows(13), data.read(np.arange(len(data))).numpy()
    values = np.concatenate([drawn(data, len(data), seed=seed)[1] for seed in range(20)])
    masks = np.concatenate([drawn(data, len(data), seed=seed)[2] for seed in range(20)])
    for j in range(13):
        assert stats.ks_2samp(values[masks[:, j], j], known[:, j]).pvalue > 0.001
    assert similarity.num_corrupted == 7
    assert stats.chisquare(masks.sum(0)).pvalue > 0.001, "every feature is drawn equally often"


def test_donors_are_uniform_and_independent_between_columns():
    data, f = distinct_table(16, 4), 4
    donors = np.concatenate([read_donors(data, 16, seed) for seed in range(250)]) // f
    for j in range(f):
        assert stats.chisquare(np.bincount(donors[:, j].astype(int), minlength=16)).pvalue > 0.001
    pairs = np.bincount((donors[:, 0] * 16 + donors[:, 1]).astype(int), minlength=256)
    assert stats.chisquare(pairs).pvalue > 0.001


def test_the_loss_is_the_papers_but_for_a_constant():
    rng = np.random.default_rng(0)
    z, corrupted = rng.normal(size=(2, 12, 8))
    recipe = SCARF(temperature=0.7)
    n, total = len(z), 0.0
    for i in range(n):
        s = [z[i] @ corrupted[k] / np.linalg.norm(z[i]) / np.linalg.norm(corrupted[k]) for k in range(n)]
        mean = sum(math.exp(value / 0.7) for value in s) / n
        total += -math.log(math.exp(s[i] / 0.7) / mean) / n
    found = recipe.objective(Net(), {"z0": torch.from_numpy(z), "z1": torch.from_numpy(corrupted)}, RandomKey(0))
    assert float(found) == pytest.approx(total + math.log(n), abs=1e-12)


def test_published_settings_are_those_of_the_paper():
    recipe, config = paper
    assert (recipe.corruption, recipe.temperature, recipe.dim) == (0.6, 1.0, 256)
    assert (config.batch_size, config.lr, config.weight_decay, config.schedule, config.encoder) == (128, 1e-3, 0.0, "constant", "mlp")
    assert [number for number, _ in reported.values()] == [2.352, 3.692]


@pytest.mark.slow
def test_training_beats_the_untrained_encoder_on_digits():
    model = nearfar.fit("scarf", preset="tiny")
    splits = model.inputs.load_splits("digits-table", model.config)
    from nearfar.evaluate import few_label_probe

    scores = [
        few_label_probe(
            *(array for part in (splits.train, splits.test) for array in (who.encode(part), torch.as_tensor(part.labels))),
            per_class=5, draws=5, rng_key=RandomKey(0),
        ).mean
        for who in (model, model.build_untrained())
    ]  # fmt: skip
    assert scores[0] > scores[1] + 0.03


def test_a_corruption_of_all_features_is_rejected_with_a_remedy():
    with pytest.raises(UsageError, match=r"--corruption 0.4 of 1 feature\(s\) leaves none unchanged.*more columns"):
        nearfar.fit("scarf", np.arange(20.0)[:, None], steps=1)
    with pytest.raises(UsageError, match=r"--corruption 1 of 2 feature\(s\) leaves none unchanged: use a smaller --corruption"):
        nearfar.fit("scarf", np.arange(20.0).reshape(10, 2), steps=1, corruption=1.0)
    for wrong in (0.0, 1.5):
        with pytest.raises(UsageError, match="--corruption must be greater than 0 and at most 1"):
            SCARF(corruption=wrong)
    assert nearfar.fit("scarf", np.arange(20.0).reshape(10, 2), steps=1).step == 1
