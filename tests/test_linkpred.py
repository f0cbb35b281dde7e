"""Filtered ranks against a loop over everything, ties, and a known answer."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearfar.core import NearfarError
from nearfar.evaluate import link_prediction as linkpred
from nearfar.evaluate.link_prediction import build_frequency_baseline, compute_filtered_ranks, evaluate_link_prediction


def oracle(score, triples, known, entities):
    """Every entity in turn: known ones are passed over, better ones count 1, equal ones 1/2."""
    true = {tuple(t) for t in known.tolist()}
    ranks = []
    for triple in triples.tolist():
        row = []
        for side in (0, 2):
            scores = score(torch.tensor([triple]), side)[0]
            rank = 1.0
            for e in range(entities):
                other = list(triple)
                other[side] = e
                if e == triple[side] or tuple(other) in true:
                    continue
                rank += 1.0 if scores[e] > scores[triple[side]] else 0.5 if scores[e] == scores[triple[side]] else 0.0
            row.append(rank)
        ranks.append(row)
    return torch.tensor(ranks)


@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 4), st.integers(1, 40), st.booleans())
def test_ranks_are_those_of_the_loop(seed, entities, relations, facts, within):
    generator = torch.Generator().manual_seed(seed)
    known = torch.stack([torch.randint(0, high, (facts,), generator=generator) for high in (entities, relations, entities)], dim=1)
    # few different scores: many ties
    tables = {side: torch.randint(0, 3, (entities * relations, entities), generator=generator).float() for side in (0, 2)}

    def score(triples, side):
        return tables[side][triples[:, 2 - side] * relations + triples[:, 1]]

    asked = known[: facts // 2 + 1]
    given_known = known if within else known[facts // 2 + 1 :]
    found = compute_filtered_ranks(score, asked, given_known, entities)
    torch.testing.assert_close(found, oracle(score, asked, given_known, entities))


def test_blocks_do_not_matter(monkeypatch):
    torch.manual_seed(0)
    known = torch.stack([torch.randint(0, 50, (300,)), torch.randint(0, 3, (300,)), torch.randint(0, 50, (300,))], dim=1)
    vectors = torch.randn(50, 4)
    score = lambda triples, side: vectors[triples[:, 2 - side]] @ vectors.T
    whole = compute_filtered_ranks(score, known[:100], known, 50)
    monkeypatch.setattr(linkpred, "SCORES_PER_BLOCK", 350)
    assert torch.equal(compute_filtered_ranks(score, known[:100], known, 50), whole)


def test_a_model_that_says_nothing_gets_the_rank_of_chance():
    triples = torch.tensor([[0, 0, 1], [2, 0, 3]])
    found = evaluate_link_prediction(lambda t, side: torch.zeros(len(t), 101), triples, triples, 101)
    assert found.mean_rank == pytest.approx(51.0)
    assert found.hits10 == 0.0
    assert found.mrr == pytest.approx(1 / 51)


def test_a_perfect_model_is_first_although_others_are_true_too():
    known = torch.tensor([[0, 0, 1], [0, 0, 2], [3, 0, 1]])
    true = {tuple(t) for t in known.tolist()}

    def score(triples, side):
        rows = [[float(((e, r, t) if side == 0 else (h, r, e)) in true) for e in range(6)] for h, r, t in triples.tolist()]
        return torch.tensor(rows)

    found = evaluate_link_prediction(score, known, known, 6)
    assert (found.mrr, found.hits1, found.mean_rank) == (1.0, 1.0, 1.0)
    worse = evaluate_link_prediction(score, known, known[:0], 6)
    assert worse.mrr < 1.0, "unfiltered, true rivals are tied with it"


def test_frequency_counts_sides_of_relations():
    train = torch.tensor([[0, 0, 1], [2, 0, 1], [2, 0, 3], [1, 1, 0]])
    score = build_frequency_baseline(train, 4, 2)
    assert score(torch.tensor([[0, 0, 0]]), 2).tolist() == [[0, 2, 0, 1]]
    assert score(torch.tensor([[0, 0, 0]]), 0).tolist() == [[1, 0, 2, 0]]
    assert score(torch.tensor([[0, 1, 0]]), 2).tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_get_no_rank(value):
    triples = torch.tensor([[0, 0, 1], [2, 0, 3]])
    scores = torch.zeros(2, 5)
    scores[1, 3] = value
    for measure in (compute_filtered_ranks, evaluate_link_prediction):
        with pytest.raises(NearfarError, match=r"scores of entities: 1 of 2 rows hold NaN or infinity"):
            measure(lambda t, side: scores, triples, triples, 5)
