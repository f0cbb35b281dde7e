"""node2vec learns communities; logistic regressions against scikit-learn; F1 against scikit-learn; the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import nearfar
from nearfar.api.evaluate import measure_model
from nearfar.cli.main import main
from nearfar.core import NearfarError, RandomKey, UsageError
from nearfar.data.walks.dataset import build_walk_graph
from nearfar.data.walks.load import load_walks
from nearfar.evaluate.input_checks import check_label_matrix
from nearfar.evaluate.multilabel import fit_one_vs_rest, multilabel_f1, top_k_f1


def test_regressions_are_scikit_learns():
    torch.manual_seed(0)
    x = torch.randn(300, 8) @ torch.randn(8, 8) + 3
    groups = x @ torch.randn(8, 4) + 4 * torch.randn(300, 4) > torch.tensor([20.0, 8.0, 0.0, -8.0])
    weight, bias = fit_one_vs_rest(x, groups, C=0.7)
    for g in range(4):
        known = LogisticRegression(C=0.7, tol=1e-10, max_iter=10_000).fit(x.double().numpy(), groups[:, g].numpy())
        assert np.abs(weight[g].numpy() - known.coef_[0]).max() < 2e-3 * np.abs(known.coef_).max()
        scores = known.decision_function(x.double().numpy())
        assert np.abs((x.double() @ weight[g] + bias[g]).numpy() - scores).max() < 5e-3 * np.abs(scores).max()


def test_a_group_of_nobody_or_everybody_is_no_error():
    x, groups = torch.randn(20, 3), torch.zeros(20, 2, dtype=torch.bool)
    groups[:, 1] = True
    weight, bias = fit_one_vs_rest(x, groups)
    assert torch.isfinite(weight).all()
    assert bias[0] < 0 < bias[1]


def test_scores_that_are_no_numbers_answer_nothing():
    truth = torch.eye(3, dtype=torch.bool)
    scores = truth.double()
    scores[1, 1] = float("nan")
    with pytest.raises(NearfarError, match="scores of groups: 1 of 3 rows hold NaN or infinity"):
        top_k_f1(scores, truth)


def test_f1_gives_each_sample_as_many_groups_as_it_has():
    torch.manual_seed(1)
    scores, truth = torch.randn(60, 7), torch.rand(60, 7) < 0.3
    answer = np.zeros((60, 7), dtype=int)
    for i in range(60):
        answer[i, scores[i].argsort(descending=True)[: int(truth[i].sum())]] = 1
    macro, micro = top_k_f1(scores, truth)
    assert macro == pytest.approx(f1_score(truth.numpy(), answer, average="macro", zero_division=0))
    assert micro == pytest.approx(f1_score(truth.numpy(), answer, average="micro"))
    assert top_k_f1(truth.float(), truth) == (1.0, 1.0)


def test_draws_are_keyed_and_nothing_to_ask_about_is_said():
    torch.manual_seed(2)
    groups = torch.eye(3, dtype=torch.bool).repeat(20, 1)
    x = groups.float() + 0.3 * torch.randn(60, 3)
    found = multilabel_f1(x, groups, rng_key=RandomKey(0), draws=3)
    assert found == multilabel_f1(x, groups, rng_key=RandomKey(0), draws=3)
    assert found.macro > 0.95
    assert multilabel_f1(torch.randn(60, 3), groups, rng_key=RandomKey(0), draws=3).macro < 0.6
    with pytest.raises(NearfarError, match="leaves no samples"):
        multilabel_f1(x[:2], groups[:2], rng_key=RandomKey(0), train_fraction=0.1)


def test_features_and_groups_are_checked_at_the_door():
    torch.manual_seed(2)
    groups = torch.eye(3, dtype=torch.bool).repeat(20, 1)
    x = (groups.float() + 0.3 * torch.randn(60, 3)).half()
    exact = multilabel_f1(x.float(), groups, rng_key=RandomKey(0), draws=2)
    assert (
        multilabel_f1(x, groups, rng_key=RandomKey(0), draws=2) == multilabel_f1(x.double(), groups, rng_key=RandomKey(0), draws=2) == exact
    )
    broken = x.clone()
    broken[7, 0] = float("nan")
    with pytest.raises(NearfarError, match="features: 1 of 60 rows hold NaN"):
        multilabel_f1(broken, groups, rng_key=RandomKey(0))
    with pytest.raises(NearfarError, match="groups: expected a table of 60 samples x groups, got the shape"):
        check_label_matrix(groups[:, 0], x)
    with pytest.raises(NearfarError, match="`draws` must be at least 1"):
        multilabel_f1(x, groups, rng_key=RandomKey(0), draws=0)
    with pytest.raises(NearfarError, match="`C` must be positive"):
        multilabel_f1(x, groups, rng_key=RandomKey(0), C=0.0)


def communities(n: int = 40, seed: int = 0):
    """Two groups, dense within and sparse between."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    same = group[:, None] == group
    a, b = np.nonzero(np.triu(rng.random((n, n)) < np.where(same, 0.4, 0.04), 1))
    names = [f"n{i}" for i in range(n)]
    return build_walk_graph(names, a, b, groups=group[:, None] == np.arange(2), group_names=("even", "odd")), group


def test_communities_are_found():
    graph, group = communities()
    trained = nearfar.fit(
        "node2vec",
        graph,
        dim=16,
        walk_length=20,
        window=5,
        return_parameter=0.5,
        in_out_parameter=2.0,
        batch_size=64,
        epochs=8,
        optimizer="adagrad",
        lr=0.3,
        warmup_ratio=0.0,
    )
    z = torch.nn.functional.normalize(trained.encode(graph), dim=1)
    cosine, same = z @ z.T, torch.from_numpy(group[:, None] == group)
    assert float(cosine[same].mean() - cosine[~same].mean()) > 0.3
    rows = {r["representation"]: r for r in measure_model(trained, graph).table.results}
    assert rows["trained table"]["macro_f1"] > 0.9
    assert rows["untrained table"]["macro_f1"] < 0.75


def test_a_graph_without_groups_is_measured_by_geometry_alone():
    trained = nearfar.fit("node2vec", "miserables", preset="tiny", steps=3)
    table = measure_model(trained).table
    assert "has no groups" in table.render()
    assert {"adjacency SVD", "untrained table", "trained table"} == {r["representation"] for r in table.results}
    with pytest.raises(UsageError, match="Did you mean 'Valjean'"):
        trained.encode(["Valjan"])


def test_the_command_line_from_fit_to_report(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "node2vec", "--tiny", "--steps", "20", "--out", "run", "-q"]) == 0
    capsys.readouterr()
    assert main(["eval", "run", "--json", "-q"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["suite"] for row in rows} == {"groups"}
    assert list(dict.fromkeys(row["system"] for row in rows)) == ["degree", "adjacency SVD", "untrained table", "trained table"]
    assert main(["embed", "run", "--data", "karate", "--out", "vectors.npy", "-q"]) == 0
    assert np.load("vectors.npy").shape == (len(load_walks("karate")), 16)
    assert main(["report", "run", "-q"]) == 0
    assert "macro-F1" in (tmp_path / "run" / "report.html").read_text()


def test_words_are_compared_with_people_where_there_are_judgements(tmp_path):
    trained = nearfar.fit("word2vec-skipgram-neg", preset="tiny", steps=5)
    (tmp_path / "judged.tsv").write_text("file\tobject\t5\nthe\tis\t1\nobject\tfile\t4\nzebra\tyak\t9\n")
    (tmp_path / "asked.txt").write_text(": section\nthe file is object\n")
    table = measure_model(trained, str(tmp_path)).table
    assert set(table.columns.values()) == {"judged", "asked"}
    assert "3 of 4 pairs" in table.render()
    alone = measure_model(trained).table
    assert "Nearest to the most frequent words" in alone.render()
