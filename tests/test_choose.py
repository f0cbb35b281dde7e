"""Methods tried for a given time and ranked without labels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import rankdata
from sklearn.datasets import load_digits

import nearfar
from nearfar.api.choose import (
    AGREEMENT_CAUTION,
    MEASURED_AGREEMENT,
    Trial,
    choose,
    measure_without_labels,
    rank_trials,
    score_without_labels,
)
from nearfar.cli.main import main
from nearfar.core import UsageError
from nearfar.train.model_data import load_model_splits

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "choose.json"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """Digits without labels."""
    path = tmp_path_factory.mktemp("data") / "digits.npy"
    np.save(path, (load_digits().images[:80] * 15).astype(np.uint8))
    return str(path)


def trial(name: str, alignment: float, spread: float, rank: float) -> Trial:
    return Trial(name, 10, 1.0, alignment, -1.0, rank, spread)


def test_the_score_is_the_mean_of_two_ranks():
    generator = np.random.default_rng(0)
    rows = [dict(zip(("alignment", "spread", "effective_rank"), generator.uniform(0.1, 1, 3), strict=True)) for _ in range(7)]
    relative = [r["alignment"] / (2 * r["spread"] ** 2) for r in rows]
    expected = ((7 - rankdata(relative)) / 6 + (rankdata([r["effective_rank"] for r in rows]) - 1) / 6) / 2
    assert score_without_labels(rows) == pytest.approx(expected)
    assert score_without_labels(rows[:1] * 3) == pytest.approx([0.5] * 3), "equal ones share"


def test_a_collapsed_method_comes_last():
    best, middle, last = rank_trials([trial("collapsed", 1e-6, 1e-4, 1.1), trial("good", 0.05, 0.5, 30.0), trial("weak", 0.1, 0.4, 20.0)])
    assert (best.recipe, middle.recipe, last.recipe) == ("good", "weak", "collapsed")
    assert best.score == 1


@pytest.mark.slow
def test_the_command_ranks_and_keeps_its_runs(data, tmp_path, capsys):
    out = tmp_path / "trials"
    assert (
        main(
            [
                "choose",
                "--data",
                data,
                "--budget",
                "600",
                "--steps",
                "20",
                "--recipes",
                "simclr,barlow-twins",
                "--out",
                str(out),
                "--json",
                "-q",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {t["recipe"] for t in found["trials"]} == {"simclr", "barlow-twins"}
    assert found["best"] == found["trials"][0]["recipe"]
    assert all(t["steps"] == 20 for t in found["trials"])
    assert found["caution"] == AGREEMENT_CAUTION
    for t in found["trials"]:
        trained = nearfar.load(t["run"])
        assert trained.step == t["steps"]
        again = measure_without_labels(trained, load_model_splits(trained))
        assert again["uniformity"] == pytest.approx(t["uniformity"], abs=1e-5)
        assert again["alignment"] == pytest.approx(t["alignment"], abs=1e-5)


def test_the_table_recommends_and_warns(data):
    found = choose(data, 600, ["simclr", "barlow-twins"], max_steps=3, seed=1)
    text = found.render()
    assert f"Recommended: {found.trials[0].recipe}." in text
    assert "untrained encoder" in text
    assert AGREEMENT_CAUTION in text
    assert found.trials[0].run == ""


def test_geometry_is_that_of_unseen_samples_and_needs_no_labels(data):
    trained = nearfar.fit("simclr", data, steps=2, batch_size=16)
    splits = load_model_splits(trained)
    found = measure_without_labels(trained, splits)
    h = torch.nn.functional.normalize(trained.encode(splits.test), dim=1)
    distance = torch.cdist(h, h).square()[~torch.eye(len(h), dtype=torch.bool)]
    assert found["uniformity"] == pytest.approx(float((-2 * distance).exp().mean().log()), abs=1e-4)
    assert 0.5 < found["spread"] ** 2 * 2 / float(distance.mean()) <= 1.001, "the mean of deviations is at most their root mean square"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--budget", "0.05"], "are too few to rank: give about"),
        (["--budget", "-1"], "greater than 0"),
        (["--budget", "9", "--steps", "0"], "at least 1"),
        (["--budget", "9", "--recipes", "simclr"], "at least two different methods"),
        (["--budget", "9", "--recipes", "simclr,simcse-unsup"], "cannot be tried on the same data"),
        (["--budget", "9", "--recipes", "simclr,bjol"], "Did you mean 'byol'"),
    ],
)
def test_mistakes_are_one_message(data, flags, words, capsys):
    assert main(["choose", "--data", data, "-q", *flags]) == 2
    assert words in capsys.readouterr().err


def test_methods_without_a_name_are_those_for_the_kind_of_data(data, tmp_path):
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"This is line number {i} of a small text.\n" for i in range(60)))
    with pytest.raises(UsageError, match="for simcse-unsup"):
        choose(str(text), 0.01, max_length=8, vocab_size=300, batch_size=16)
    with pytest.raises(UsageError, match="for simclr"):
        choose(data, 0.01, batch_size=16)
    with pytest.raises(UsageError, match="for nandan-vepa"):
        choose("tones", 0.01, batch_size=16)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.pdf").write_bytes(b"%PDF")
    with pytest.raises(UsageError, match=r"cannot tell which kind of data .*name the methods to try with --recipes"):
        choose(str(tmp_path / "other"), 1.0, out=tmp_path / "trials")
    assert not (tmp_path / "trials").exists()


def test_word_methods_are_ranked_by_neighboring_words(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\nthe dog sat on the log\n" * 60)
    methods = ["word2vec-skipgram-neg", "word2vec-cbow"]
    chosen = choose(str(text), 60.0, methods, min_count=1, batch_size=2, max_steps=40)
    found = json.loads(chosen.to_json())
    assert found["measure"] == "AUC of neighboring words"
    scores = [trial["own_score"] for trial in found["trials"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in [*scores, found["untrained"]["own_score"]])


@pytest.mark.parametrize(("data", "method", "batch"), [("atlas", "infograph", 16), ("bounce", "st-dim", 16), ("iris", "scarf", 16)])
def test_other_modalities_are_ranked_by_their_views(data, method, batch):
    found = choose(data, 40.0, max_steps=20, batch_size=batch)
    (trial,) = found.trials
    assert trial.recipe == method
    assert math.isfinite(trial.alignment)
    assert trial.alignment > 0
    assert found.untrained["effective_rank"] > 1
    assert f"Recommended: {method}" in found.render()


def test_one_default_method_is_compared_with_its_untrained_encoder():
    found = choose("miserables", 30.0, max_steps=60, batch_size=16)
    assert [trial.recipe for trial in found.trials] == ["node2vec"]
    assert found.measure == "AUC of edges"
    assert found.trials[0].own_score > found.untrained["own_score"]
    assert "AUC of edges" in found.render()


def test_a_sound_among_pictures_does_not_make_them_sounds(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(40):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "0.wav").write_bytes(b"RIFF")
    with pytest.raises(UsageError, match="for simclr"):
        choose(str(tmp_path), 0.01, batch_size=16)


def test_the_caution_is_what_was_measured():
    summary = json.loads(RESULTS.read_text())["summary"]
    found = {}
    for part, measured in summary.items():
        data, _, kind = part.rpartition(", ")
        found[data, kind] = (round(measured["variants"]["mean"]), round(measured["spearman few_labels"]["mean"], 2))
    assert {data for data, _ in found} == set(MEASURED_AGREEMENT)
    for data, (where, n, every, m, usual) in MEASURED_AGREEMENT.items():
        assert (n, every) == found[data, "all variants"]
        assert (m, usual) == found[data, "recipes at their usual settings"]
        assert f"{where} by {every:.2f} over {n} recipes" in AGREEMENT_CAUTION
