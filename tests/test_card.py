"""Cards: their enumerated fields."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args

import pytest

from nearfar.core import Card
from nearfar.core.card import HeadType, LossFamily, SimilarityType
from nearfar.recipes.method_summary import read_all_summaries


def test_cards_of_old_files_are_listed_under_other():
    card = Card("Own", "none", 2020, "image", "?", "?", "?", "?", "?", "?", "?", "?", "?")
    assert (card.family, card.similarity_type, card.head_type) == ("other", ("other",), ("other",))


WRONG_VALUES = {
    "family='NCE and softmac'": "card of 'Own': family must be one of energy and margin, NCE and softmax, .*Did you mean 'NCE and softmax'",
    "similarity_type=('label',)": "similarity_type must be one of .*got 'label'. Did you mean 'labels'",
    "head_type=('none', 'mlp')": "head_type must be one of none, projection, .*got 'mlp'",
    "similarity_type='labels'": "similarity_type must be a tuple, such as .*got 'labels'",
    "head_type=()": r"head_type must be a tuple, such as .*got \(\)",
}


def test_a_wrong_value_is_a_plain_error():
    """Runs in another process, without the type checker of the tests, which would find the same mistakes first."""
    code = "from nearfar.core import Card, UsageError\n"
    for call in WRONG_VALUES:
        made = f"Card('Own', 'none', 2020, 'image', *['?'] * 9, {call})"
        code += f"try:\n    {made}\nexcept UsageError as e:\n    print(e)\n"
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    for line, expected in zip(lines, WRONG_VALUES.values(), strict=True):
        assert re.search(expected, line)


def test_every_recipe_is_sorted_and_every_value_is_used():
    cards = [summary.card for summary in read_all_summaries()]
    families = {card.family for card in cards}
    similarities = {value for card in cards for value in card.similarity_type}
    heads = {value for card in cards for value in card.head_type}
    for found, known in ((families, LossFamily), (similarities, SimilarityType), (heads, HeadType)):
        assert found == set(get_args(known)) - {"other"}


@pytest.mark.parametrize(
    ("name", "family", "similarity", "head"),
    [
        ("simclr", "NCE and softmax", ("data transformation",), ("projection",)),
        ("facenet", "energy and margin", ("labels",), ("projection",)),
        ("dim", "mutual information", ("context-instance",), ("projection", "contextualization")),
        ("byol", "no negatives", ("data transformation",), ("projection",)),
        ("swav", "clustering", ("natural clustering", "data transformation"), ("projection", "quantization")),
        ("quick-thought", "NCE and softmax", ("sequential coherence",), ("none",)),
        ("clip", "NCE and softmax", ("multisensory",), ("projection",)),
        ("wav2vec2", "NCE and softmax", ("context-instance",), ("quantization", "contextualization")),
    ],
)
def test_well_known_methods_stand_where_the_survey_puts_them(name, family, similarity, head):
    card = {summary.name: summary.card for summary in read_all_summaries()}[name]
    assert (card.family, card.similarity_type, card.head_type) == (family, similarity, head)
