"""Semantic textual similarity on seven sets. --data names SentEval's folder."""

from __future__ import annotations

from nearfar.api.suite_subject import Subject, SuiteRow
from nearfar.core import RandomKey
from nearfar.evaluate.lexical_baselines import build_random_word_encoder, ngram_jaccard, tf_idf_cosine
from nearfar.evaluate.sts import PairScorer, build_cosine_scorer, measure_sts, read_sts_sets


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    return subject.explain_missing_texts("SentEval's folder")


def measure(subject: Subject) -> list[SuiteRow]:
    """Measure Spearman's correlation, next to baselines that count words and letters."""
    scorers: dict[str, PairScorer] = {
        "tf-idf": tf_idf_cosine,
        "letter trigrams": ngram_jaccard,
        "random word vectors": build_cosine_scorer(build_random_word_encoder(RandomKey(subject.seed)("evaluate", "words"))),
    }
    scorers |= {system: build_cosine_scorer(encode) for system, encode in subject.get_text_encoders().items()}
    sets, rows = read_sts_sets(subject.data), []
    for system, scorer in scorers.items():
        found = measure_sts(sets, scorer)
        rows += [SuiteRow("sts", system, name, found.compute_correlation(name)) for name in sets]
        rows.append(SuiteRow("sts", system, "average", found.compute_average()))
    subject.protocol["sts"] = "Spearman's correlation of cosines with human scores; the files of a set joined (protocol all)"
    return rows
