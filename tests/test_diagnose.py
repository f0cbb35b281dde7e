"""Runs broken on purpose, one fault each: every fault is named, and healthy runs get no finding. The measurements against plain loops."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.api.diagnose import PROBLEMS, Diagnosis, diagnose, find_problems
from nearfar.api.fit import fit
from nearfar.cli.main import main
from nearfar.core import RandomKey
from nearfar.evaluate.health_measures import (
    NEAR_DUPLICATE_DISTANCE,
    count_near_duplicates,
    effective_negative_share,
    in_batch_duplicate_rate,
    relative_distances,
    relative_effective_rank,
    same_label_rate,
    view_match_rate,
)
from nearfar.train.model_data import load_model_splits

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from broken import FAULTS, HEALTHY

STEPS = {
    "alignment alone": 40, "Barlow Twins, lambda 0.00001": 40, "SimCLR, eight copies of each image": 2, "SimCLR, two classes": 2,
    "SimCLR, tau 0.005": 40, "SimCLR, tau 10": 40, "SimCLR, turns by 3 degrees": 2, "SimCLR, crumbs": 30,
    "SimCLR, a constant in its features": 20, "SimCLR, test images in training": 2, "SimCSE without dropout": 2,
}  # fmt: skip
"""How long each broken run is trained: as long as its fault needs to show."""


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", STEPS)
def test_each_fault_is_named(name, tmp_path):
    case = FAULTS[name]
    found = diagnose(*case.train(tmp_path, seed=1, steps=STEPS[name], batch_size=64))
    assert [finding.name for finding in found.findings] == [case.expected]
    (finding,) = found.findings
    assert finding.remedies
    assert all(any(char.isdigit() for char in text) for text in (finding.description, *finding.reason))


def test_thresholds_lie_between_all_healthy_and_all_broken_runs_that_were_measured():
    """But for what benchmarks/diagnose.py itself counts as missed, or as a false alarm."""
    stored = json.loads((Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "diagnose.json").read_text())
    for row in stored["rows"]:
        measured = row["symptoms"]
        crossed = {a.name for a in PROBLEMS if all(x.measure in measured and x.is_crossed(measured[x.measure]) for x in a.limits)}
        assert set(row["found"]) <= crossed
        assert (not crossed) or bool(row["found"]), "what is crossed is said, unless something else explains it"
    assert stored["summary"]["broken runs"] >= 20
    assert stored["summary"]["misses"] + stored["summary"]["false alarms"] <= 0.05 * len(stored["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simclr", "barlow-twins", "simcse-unsup"])
def test_healthy_runs_get_no_finding(name, tmp_path):
    case = HEALTHY[name]
    found = diagnose(*case.train(tmp_path, seed=1, steps=15 if name == "simcse-unsup" else 40, batch_size=64))
    assert found.findings == []
    assert "No finding" in found.render()
    assert "leaked" in found.symptoms
    assert found.problems_not_examined == {"simclr": [], "simcse-unsup": ["views too strong"]}.get(
        name, ["temperature too low", "temperature too high", "false negatives"]
    )


def test_the_command_says_what_where_and_what_to_try(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["fit", "simclr", "--tiny", "--steps", "40", "--batch-size", "64", "--temperature", "10", "--out", run, "-q"]) == 0
    capsys.readouterr()
    assert main(["diagnose", run]) == 0
    text = capsys.readouterr().out
    assert "TEMPERATURE TOO HIGH" in text
    assert "try: --temperature" in text
    assert main(["diagnose", run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in found["findings"]] == ["temperature too high"]
    assert found["symptoms"]["negatives_in_use"] > 0.985


def test_advice_names_only_flags_that_the_recipe_has():
    model = fit("barlow-twins", "digits", steps=1, batch_size=16, dim=8)
    collapsed = find_problems({"spread": 0.0, "rank_share": 0.0}, model)
    assert [f.name for f in collapsed] == ["collapse"], "what collapse brings along is not named beside it"
    assert flags(collapsed[0].remedies) == ["--redundancy-weight"], "its norm is batch already"
    (collapsed,) = find_problems({"spread": 0.0}, fit("barlow-twins", "digits", steps=1, batch_size=16, dim=8, norm="layer"))
    assert flags(collapsed.remedies) == ["--norm", "--redundancy-weight"]


def flags(tries: list[str]) -> list[str]:
    return [advice.split()[0] for advice in tries if advice.startswith("--")]


@pytest.mark.parametrize(("symptoms", "tau", "advised"), [
    ({"negatives_in_use": 0.1, "spread": 0.5}, 1.0, "--temperature 5: "),
    ({"negatives_in_use": 0.1, "spread": 0.5}, 0.01, "--temperature 0.05: "),
    ({"negatives_in_use": 0.99, "spread": 1.0}, 0.3, "--temperature 0.03: "),
    ({"rank_share": 0.01}, 0.1, "--temperature 0.05: "),
])  # fmt: skip
def test_advice_goes_on_from_the_runs_own_value(symptoms, tau, advised):
    (found,) = find_problems(symptoms, fit("simclr", "digits", steps=1, batch_size=16, dim=8, temperature=tau))
    assert any(advice.startswith(advised) for advice in found.remedies)


def test_a_slower_target_is_one_for_every_momentum():
    (found,) = find_problems({"spread": 0.0}, fit("byol", "digits", steps=1, batch_size=16, dim=8, hidden_dim=8, ema_momentum=0.996))
    assert flags(found.remedies) == ["--ema-momentum"]
    assert any(advice.startswith("--ema-momentum 0.9996: a slower target") for advice in found.remedies)


def test_vectors_of_free_length_have_no_temperature_that_is_too_low(tmp_path):
    """With unit vectors a low temperature brings a narrow cone along, and is the fault; a dot product grows sharp by itself."""
    cone = {"spread": 0.16, "negatives_in_use": 0.1}
    model = fit("dpr", preset="tiny", steps=1)
    symptoms = diagnose(model).symptoms
    assert symptoms["length"] == pytest.approx(5, abs=3)
    assert [f.name for f in find_problems(symptoms | cone, model)] == ["collapse"]
    assert "temperature too low" in Diagnosis([], symptoms).problems_not_examined
    unit = fit("dpr", preset="tiny", steps=1, score="cosine")
    assert "length" not in diagnose(unit).symptoms
    assert [f.name for f in find_problems(diagnose(unit).symptoms | cone, unit)] == ["temperature too low"]


def test_every_ailment_explains_its_threshold_and_is_looked_for():
    for ailment in PROBLEMS:
        assert ailment.origin
        assert set(ailment.unless) <= {a.name for a in PROBLEMS}
        ailment.description.format(**{limit.measure: 0.5 for limit in ailment.limits})
    assert set(Diagnosis([], {}).problems_not_examined) == {a.name for a in PROBLEMS}


def test_match_rate_counts_partners_that_are_nearest():
    a, b = rows(20, 5), rows(20, 5) + 0.8 * rows(20, 5, 1)
    mean = torch.cat([a, b]).mean(0)
    hits = 0
    for i in range(20):
        cosines = [float(torch.cosine_similarity(a[i] - mean, b[j] - mean, dim=0)) for j in range(20)]
        hits += max(range(20), key=cosines.__getitem__) == i
    assert view_match_rate(a, b) == pytest.approx(hits / 20)
    assert 0 < hits < 20
    assert view_match_rate(a, a) == 1
    assert view_match_rate(torch.ones(6, 3), torch.ones(6, 3)) == 0, "rows that are all equal match nobody"


def test_negatives_in_use_is_the_perplexity_of_their_weights():
    a, b = rows(7, 4), rows(7, 4, 1)
    shares = []
    for i in range(7):
        scores = [float(torch.cosine_similarity(a[i], b[j], dim=0)) / 0.3 for j in range(7) if j != i]
        total = sum(map(math.exp, scores))
        entropy = -sum(math.exp(s) / total * math.log(math.exp(s) / total) for s in scores)
        shares.append(math.exp(entropy) / 6)
    assert effective_negative_share(a, b, 0.3) == pytest.approx(np.mean(shares), rel=1e-5)
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (a, b)]
    assert effective_negative_share(*unit, 0.3, "dot") == pytest.approx(np.mean(shares), rel=1e-5)
    assert effective_negative_share(5 * unit[0], 5 * unit[1], 25 * 0.3, "dot") == pytest.approx(np.mean(shares), rel=1e-5)
    assert effective_negative_share(a, b, 1e4) == pytest.approx(1, abs=1e-4)
    assert effective_negative_share(a, b, 1e-4) == pytest.approx(1 / 6, abs=1e-3)


def test_rank_share_of_known_clouds():
    assert relative_effective_rank(rows(4000, 8)) == pytest.approx(1, abs=0.01)
    line = rows(50, 1) @ rows(1, 8, 1) + 5
    assert relative_effective_rank(line) == pytest.approx(1 / 8, abs=1e-3)
    assert relative_effective_rank(torch.full((10, 4), 3.0)) == 0


def test_twins_are_found_among_chunks():
    x = rows(30, 16)
    y = torch.cat([x[:5] + 0.01 * rows(5, 16, 1), rows(20, 16, 2), x[:2]])
    mean = torch.cat([x, y]).mean(0)
    counts = count_near_duplicates(x, y.split(6), mean)
    assert counts.tolist() == [2, 2, 1, 1, 1] + [0] * 25
    distance = float(((x[0] - y[7]) ** 2).sum() / (((x[0] - mean) ** 2).sum() + ((y[7] - mean) ** 2).sum()))
    assert float(relative_distances(x, y, mean)[0, 7]) == pytest.approx(distance, rel=1e-5)
    assert distance > NEAR_DUPLICATE_DISTANCE


def test_chance_to_meet_a_twin_and_to_share_a_label():
    draws = RandomKey(0)("draws").uniform(np.arange(20_000), 9)
    met = (draws < 3 / 99).any(1).mean()
    assert in_batch_duplicate_rate(torch.full((4,), 3), batch_size=10, dataset_size=100) == pytest.approx(met, abs=0.01)
    labels = torch.tensor([0, 0, 1, 2, 2, 2])
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    assert same_label_rate(labels) == pytest.approx(sum(bool(labels[i] == labels[j]) for i, j in pairs) / len(pairs))


def test_a_dot_product_is_judged_as_the_loss_takes_it(tmp_path):
    run = nearfar.fit("dpr", preset="tiny", steps=40, out=tmp_path / "run")
    symptoms = diagnose(run).symptoms
    assert 0 < symptoms["negatives_in_use"] < 0.9, "vectors of length 5 make sharp weights at tau = 1"


def test_sounds_are_examined(tmp_path):
    nearfar.fit("nandan-vepa", preset="tiny", steps=2, out=tmp_path / "sounds")
    assert {"leaked", "spread", "mean_cosine"} <= diagnose(nearfar.load(tmp_path / "sounds")).symptoms.keys()


@pytest.mark.parametrize("method", ["node2vec", "word2vec-skipgram-neg", "transe", "dgi"])
def test_rows_of_tables_are_examined_by_their_vectors(method):
    model = nearfar.fit(method, preset="tiny", steps=2)
    found = diagnose(model)
    few = len(load_model_splits(model).train) < 32
    assert few == ("too few" in found.render())
    assert few or {"spread", "rank_share", "mean_cosine"} <= found.symptoms.keys()


def test_what_was_not_examined_is_not_called_healthy():
    few = (np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8), np.arange(20) % 2)
    assert "too few, 32 are needed" in diagnose(nearfar.fit("simclr", data=few, steps=1, batch_size=8), few).render()
