"""SQuAD's exact match and F1: known answers, and the official script's functions written out as the oracle."""

from __future__ import annotations

import collections
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.core import NearfarError
from nearfar.evaluate.squad_answers import exact_match, normalize_answer, score_answers, token_f1

WORDS = st.lists(
    st.sampled_from(["the", "a", "An", "Norman", "normans,", "“duke”", "1066", "10.66", "of", "the-the", "É"]), max_size=6
).map(" ".join)


def official_normalise(s: str) -> str:
    def remove_articles(text):
        return re.compile(r"\b(a|an|the)\b", re.UNICODE).sub(" ", text)

    def remove_punctuation(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return " ".join(remove_articles(remove_punctuation(s.lower())).split())


def official_f1(prediction: str, truth: str) -> float:
    said, right = official_normalise(prediction).split(), official_normalise(truth).split()
    common = collections.Counter(said) & collections.Counter(right)
    same = sum(common.values())
    if same == 0:
        return 0.0
    precision, recall = same / len(said), same / len(right)
    return 2 * precision * recall / (precision + recall)


@given(WORDS, WORDS)
def test_both_agree_with_the_official_script(a, b):
    assert normalize_answer(a) == official_normalise(a)
    assert exact_match(a, b) == float(official_normalise(a) == official_normalise(b))
    assert token_f1(a, b) == pytest.approx(official_f1(a, b))


@pytest.mark.parametrize(
    ("said", "right", "exact", "score"),
    [
        ("the Eiffel Tower.", "Eiffel tower", 1.0, 1.0),
        ("Eiffel", "the Eiffel Tower", 0.0, 2 / 3),
        ("in 1066", "1066", 0.0, 2 / 3),
        ("1,066", "1066", 1.0, 1.0),
        ("Paris", "London", 0.0, 0.0),
        ("", "London", 0.0, 0.0),
        ("no no no", "no", 0.0, 0.5),
    ],
)
def test_known_answers(said, right, exact, score):
    assert exact_match(said, right) == exact
    assert token_f1(said, right) == pytest.approx(score)


def test_the_best_accepted_answer_counts():
    found = score_answers(["in Paris", "Rollo"], [["Paris", "in Paris, France"], ["Rollo"]])
    assert found.exact_match.tolist() == [0.0, 1.0]
    assert found.f1.tolist() == pytest.approx([0.8, 1.0])


def test_unlike_lengths_and_missing_answers_are_refused():
    with pytest.raises(NearfarError, match="2 predictions"):
        score_answers(["a", "b"], [["a"]])
    for answers in ([[], ["b"]], [["a"], []]):
        with pytest.raises(NearfarError, match="no accepted answer"):
            score_answers(["a", "b"], answers)
