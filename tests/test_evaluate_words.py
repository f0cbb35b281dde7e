"""Word similarity and analogies against scipy, naive loops and files as the authors write them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr

from nearfar.core import NearfarError, UsageError
from nearfar.evaluate.word_similarity import (
    AnalogyResult,
    RatedWordPairs,
    read_analogies,
    read_rated_pairs,
    score_analogies,
    score_word_similarity,
)

WORDSIM = "# The WordSimilarity-353 Collection\n# Word 1\tWord 2\tHuman (mean)\nlove\tsex\t6.77\nTiger\tcat\t7.35\n\nplane\tcar\t5.77\n"
COMBINED = "Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n"
SIMLEX = (
    "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\r\n"
    "old\tnew\tA\t1.58\t2.72\t2.81\t2\t7.25\t1\t0.41\r\nsmart\tintelligent\tA\t9.2\t1.75\t2.46\t1\t7.11\t1\t0.67\r\n"
)
QUESTIONS = ": capitals\nAthens Greece Berlin Germany\nBerlin Germany Oslo Norway\n: empty\n: family\nboy girl king queen\n"


def written(tmp_path, content):
    path = tmp_path / "words.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_wordsim_and_simlex_as_their_authors_write_them(tmp_path):
    assert read_rated_pairs(written(tmp_path, WORDSIM)) == RatedWordPairs(
        (("love", "sex"), ("tiger", "cat"), ("plane", "car")), (6.77, 7.35, 5.77)
    )
    assert read_rated_pairs(written(tmp_path, COMBINED)) == RatedWordPairs((("love", "sex"), ("tiger", "cat")), (6.77, 7.35))
    assert read_rated_pairs(written(tmp_path, SIMLEX)) == RatedWordPairs((("old", "new"), ("smart", "intelligent")), (1.58, 9.2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("love\tsex\t6.77\ntiger\tcat\n", "line 2: expected two words and a score"),
        ("# remark\nlove\tsex\t6.77\ntiger\tcat\thigh\n", "line 3: the score 'high' is not a number"),
        ("love\tsex\tnan\ntiger\tcat\tnan\n", "line 2: the score 'nan' is not a number"),
        ("love\tsex\t6.77\n\tcat\t3\n", "line 2"),
        (SIMLEX + "short\trow\tA\r\n", "line 4: expected two words and a score in column 4"),
        (b"love\tsex\t6.77\nt\xffger\tcat\t3\n", "line 2: not UTF-8"),
        ("# only remarks\n", "contains no word pairs"),
    ],
)
def test_malformed_judgements_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(NearfarError, match=message):
        read_rated_pairs(written(tmp_path, content))


def test_questions_by_section(tmp_path):
    sections = read_analogies(written(tmp_path, QUESTIONS))
    assert list(sections) == ["capitals", "empty", "family"]
    assert sections["capitals"] == [("athens", "greece", "berlin", "germany"), ("berlin", "germany", "oslo", "norway")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b c d\n", "line 1: a question before the first section"),
        (": s\na b c d\na b c\n", "line 3: expected four words, found 3"),
        (": s\n", "no questions"),
    ],
)
def test_malformed_questions_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(NearfarError, match=message):
        read_analogies(written(tmp_path, content))


def test_a_file_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_rated_pairs(tmp_path / "none")


def test_agreement_is_spearman_of_cosines_over_known_pairs():
    g = torch.Generator().manual_seed(0)
    vectors = torch.randn(30, 8, generator=g)
    number = {f"w{i}": i for i in range(30)}
    pairs = tuple((f"w{i}", f"w{(i * 7 + 3) % 40}") for i in range(30))
    scores = tuple(float(int(x * 5)) for x in torch.rand(30, generator=g))  # with ties
    found = score_word_similarity(vectors, number, RatedWordPairs(pairs, scores))
    known = [(number[a], number[b], s) for (a, b), s in zip(pairs, scores, strict=True) if b in number]
    cosines = [float(torch.cosine_similarity(vectors[a], vectors[b], dim=0)) for a, b, _ in known]
    assert (found.covered, found.pairs) == (len(known), 30)
    assert found.covered < 30
    assert found.spearman == pytest.approx(spearmanr(cosines, [s for _, _, s in known]).statistic, abs=1e-9)


def test_no_known_pair_is_no_number():
    found = score_word_similarity(torch.eye(2), {"a": 0, "b": 1}, RatedWordPairs((("x", "y"), ("a", "b")), (1.0, 2.0)))
    assert math.isnan(found.spearman)
    assert (found.covered, found.pairs) == (1, 2)


def test_analogies_against_a_naive_loop():
    g = torch.Generator().manual_seed(1)
    vectors = torch.randn(40, 6, generator=g)
    number = {f"w{i}": i for i in range(40)}
    asked = [tuple(f"w{i}" for i in torch.randperm(44, generator=g)[:4].tolist()) for _ in range(300)]
    right = covered = 0
    unit = [v / v.norm() for v in vectors]
    for question in asked:
        if all(w in number for w in question):
            a, b, c, d = (number[w] for w in question)
            target = unit[b] - unit[a] + unit[c]
            best = max((i for i in range(40) if i not in (a, b, c)), key=lambda i: float(target @ unit[i]))
            covered, right = covered + 1, right + (best == d)
    assert 0 < covered < 300
    assert right > 0
    assert score_analogies(vectors, number, {"s": asked, "none": []}) == {
        "s": AnalogyResult(right, covered, 300),
        "none": AnalogyResult(0, 0, 0),
    }


def test_a_parallelogram_is_answered_and_limits_hold():
    vectors = torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 1, 0]])
    number = dict(zip(["man", "woman", "king", "queen", "other"], range(5), strict=True))
    sections = {"family": [("man", "woman", "king", "queen")]}
    assert score_analogies(vectors, number, sections)["family"].accuracy == 1.0
    limited = score_analogies(vectors, number, sections, max_words=3)["family"]
    assert (limited.covered, limited.questions) == (0, 1)
    assert math.isnan(limited.accuracy)
    assert AnalogyResult(1, 2, 3) + AnalogyResult(1, 1, 1) == AnalogyResult(2, 3, 4)
    with pytest.raises(UsageError, match="max_words"):
        score_analogies(vectors, number, sections, max_words=0)


def test_vectors_that_are_no_numbers_are_refused():
    vectors = torch.eye(4)
    vectors[3, 0] = math.nan
    number = {word: i for i, word in enumerate("abcd")}
    with pytest.raises(NearfarError, match="word vectors: 1 of 4 rows hold NaN or infinity"):
        score_word_similarity(vectors, number, RatedWordPairs((("a", "b"), ("c", "d"), ("a", "d")), (1.0, 2.0, 3.0)))
    with pytest.raises(NearfarError, match="word vectors: 1 of 4 rows hold NaN or infinity"):
        score_analogies(vectors, number, {"all": [("a", "b", "c", "d")]})
