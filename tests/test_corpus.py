"""Running text as numbers: words, counts, sentences, malformed files, and the vocabulary that travels with a run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.core import NearfarError, TrainConfig, UsageError
from nearfar.data.common.named_samples import build_word_tokenizer, get_vocabulary
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.words.dataset import Corpus, build_corpus, split_words
from nearfar.data.words.load import load_words
from nearfar.data.words.readers import read_sentences
from nearfar.modalities import find_modality
from nearfar.recipes import load_method

ARTICLES = """# The cat
The cat sat on the mat.
A cat isn't a dog; a dog is not a cat!

# The dog
#hashtags are words: the dog sat.
…
"""


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat sat.", ["the", "cat", "sat"]),
        ("Don't, 'quoted' O’Neil", ["don't", "quoted", "o’neil"]),
        ("snake_case x2 -- 3.14", ["snake", "case", "x2", "3", "14"]),
        ("Ünïcode ΣΊΣΥΦΟΣ 東京", ["ünïcode", "σίσυφος", "東京"]),
        ("… !?", []),
    ],
)
def test_words_of_a_line(line, words):
    assert split_words(line) == words


def test_titles_and_empty_lines_are_no_sentences(tmp_path):
    lines = list(read_sentences(written(tmp_path / "a.txt", "\ufeff" + ARTICLES)))
    assert lines == ["The cat sat on the mat.", "A cat isn't a dog; a dog is not a cat!", "#hashtags are words: the dog sat.", "…"]


def test_counts_and_sentences_are_those_of_a_counter(tmp_path):
    corpus = load_words(written(tmp_path / "a.txt", ARTICLES), min_count=2).train
    lines = [split_words(line) for line in ARTICLES.splitlines() if not line.startswith("# ")]
    counts = Counter(word for line in lines for word in line)
    assert corpus.source_word_count == sum(counts.values())
    assert dict(zip(corpus.words, corpus.counts.tolist(), strict=True)) == {w: c for w, c in counts.items() if c >= 2}
    assert list(corpus.words) == sorted(corpus.words, key=lambda w: (-counts[w], w))
    assert list(corpus.iterate_sentences()) == [kept for line in lines if (kept := [w for w in line if counts[w] >= 2])]
    assert np.flatnonzero(corpus.is_sentence_start).tolist() == corpus.offsets[:-1].tolist()
    assert corpus.sizes() == {"n": len(corpus), "words": len(corpus.words), "tokens": len(corpus.tokens)}
    assert corpus.tokens.dtype == np.int32


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=12), st.integers(1, 4))
def test_rare_words_are_left_out_of_the_text(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    frequent = {w for w, c in counts.items() if c >= min_count}
    if len(frequent) < 2:
        with pytest.raises(UsageError, match="--min-count"):
            build_corpus(sentences, min_count)
        return
    corpus = build_corpus(sentences, min_count)
    assert list(corpus.iterate_sentences()) == [kept for s in sentences if (kept := [w for w in s if w in frequent])]
    assert np.array_equal(np.bincount(corpus.tokens), corpus.counts)


def test_a_folder_is_its_text_files_in_order(tmp_path):
    written(tmp_path / "b.txt", "two words\n")
    written(tmp_path / "a.txt", "one word\n")
    written(tmp_path / "c.md", "no text\n")
    assert list(load_words(tmp_path, min_count=1).train.iterate_sentences()) == [["one", "word"], ["two", "words"]]


def test_fingerprints_tell_texts_apart():
    first = load_words(["a b a b", "b a"], min_count=1).train
    assert first.fingerprint == load_words(["A b, a b!", "b a"], min_count=1).train.fingerprint
    assert len({load_words(t, min_count=1).train.fingerprint for t in (["a b a b", "b a"], ["a b a b b a"], ["a b b a", "b a"])}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good line\nbad \xff line\n", r"a\.txt, line 2: not UTF-8"),
        (b"good line\nmore\nzero \0 byte\n", r"a\.txt, line 3: a zero byte"),
        (b"", "0 words that occur 5 times"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(NearfarError, match=message):
        load_words(written(tmp_path / "a.txt", content))


@pytest.mark.parametrize("spec", ["", "nowhere.txt", 7, [1, 2], []])
def test_what_is_no_text_is_refused(spec):
    with pytest.raises(UsageError, match="text"):
        load_words(spec)


def test_docstrings_are_always_there():
    corpus = load_words("docstrings").train
    assert len(corpus.tokens) > 20_000
    assert corpus.words[0] == "the"
    assert corpus.counts.min() >= 5


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="abÄß éI'’_-. 12東", max_size=30))
def test_the_vocabulary_as_a_tokenizer_cuts_as_we_do(text):
    words = ["a", "b", "ä", "ab", "12", "é"]
    engine = build_word_tokenizer(words).engine
    assert engine.encode(text).ids == [words.index(w) if w in words else len(words) for w in split_words(text)]


def test_a_vocabulary_is_stored_and_read_again(tmp_path):
    words = ("the", "o’neil", "東京", '"quote')
    path = written(tmp_path / "tokenizer.json", build_word_tokenizer(words).to_json())
    assert get_vocabulary(Tokenizer.load(path)) == {word: i for i, word in enumerate(words)}


def test_words_are_brought_to_a_trained_net():
    recipe = load_method("word2vec-skipgram-neg").recipe_class()
    corpus: Corpus = find_modality(recipe.card.modality).build_inputs().load_splits(["b a b a c c c c"], TrainConfig(min_count=2)).train
    inputs = find_modality(recipe.card.modality).build_inputs(corpus.sizes(), corpus.tokenizer)
    (some,) = inputs.adapt(["A", "c"])
    assert some.read([0, 1]).tolist() == [corpus.word_ids["a"], corpus.word_ids["c"]]
    assert [some.name(i) for i in range(2)] == ["a", "c"]
    (known,) = inputs.load_all(["z b c d"], TrainConfig())
    assert [known.name(i) for i in range(len(known))] == ["c", "b"]
    with pytest.raises(UsageError, match="'z' is not in this run's vocabulary of 3 words"):
        inputs.adapt(["a", "z"])
