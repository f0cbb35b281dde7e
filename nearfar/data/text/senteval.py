"""Readers of SentEval's folder of sentence tasks.

The tasks are scored pairs (STS12 to STS16, STS-B, SICK), classified sentences and classified pairs:

    STS/STS12-en-test/STS.input.MSRpar.txt  STS.gs.MSRpar.txt  …
    STS/STSBenchmark/sts-train.csv  …    SICK/SICK_train.txt  …
    MR/rt-polarity.pos  CR/custrev.pos  SUBJ/subj.subjective  MPQA/mpqa.pos
    SST/binary/sentiment-train  SST/fine/…    TREC/train_5500.label
    MRPC/msr_paraphrase_train.txt (or msr-para-train.tsv)    SNLI/s1.dev  s2.dev  labels.dev

Every reader takes the folder that holds these. A malformed row raises an error that names its file and line.

Reference: Conneau & Kiela, SentEval: An Evaluation Toolkit for Universal Sentence Representations, LREC 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from nearfar.core.errors import UsageError

SplitName = Literal["train", "dev", "test"]

STS_PARTS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # "SMT" is not free: no public copy holds its sentences
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
STS_SETS = (*STS_PARTS, "STS-B", "SICK-R")
"""The seven sets that papers average over. STS-B and SICK-R are represented by their test split."""

_POLAR = {
    "MR": ("rt-polarity.neg", "rt-polarity.pos"),
    "CR": ("custrev.neg", "custrev.pos"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.neg", "mpqa.pos"),
}
_SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_SNLI_CLASSES = ("contradiction", "entailment", "neutral")


@dataclass(frozen=True)
class GradedPairs:
    """Sentence pairs with human similarity scores from 0 to 5 (SICK: from 1)."""

    first: list[str]
    second: list[str]
    score: Float[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class LabeledSentences:
    """Sentences with their classes.

    `labels` holds positions in `classes`.
    """

    texts: list[str]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabeledPairs:
    """Sentence pairs with their classes.

    `labels` holds positions in `classes`.
    """

    first: list[str]
    second: list[str]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.first)


# --- scored pairs -----------------------------------------------------------------------------------------------


def read_sts(folder: str | Path, name: str) -> dict[str, GradedPairs]:
    """Read one of the seven sets of `STS_SETS`.

    Returns:
        Scored pairs by sub-file: about five sub-files for a year, "test" alone for STS-B and SICK-R.
    """
    if name not in STS_SETS:
        raise UsageError(f"unknown sentence similarity dataset {name!r}: use one of {', '.join(STS_SETS)}")
    if name == "STS-B":
        return {"test": read_sts_benchmark(folder, "test")}
    if name == "SICK-R":
        return {"test": read_sick(folder, "test")}
    return {part: _sts_part(Path(folder) / "STS" / f"{name}-en-test", part) for part in STS_PARTS[name]}


def _sts_part(folder: Path, part: str) -> GradedPairs:
    """Read the sentence pairs and scores of one sub-file.

    Sentences and scores are in two files, line by line. Pairs without a score are left out, because they were
    never part of the evaluation.
    """
    texts, grades = folder / f"STS.input.{part}.txt", folder / f"STS.gs.{part}.txt"
    pairs, scores = _lines(texts), _lines(grades)
    if len(pairs) != len(scores):
        raise UsageError(f"{texts} has {len(pairs)} lines, {grades} has {len(scores)}: both must have one line for each pair")
    rows = [
        (*_sentences(texts, number, _fields(texts, number, pair, 2)[:2]), _grade(grades, number, score))
        for number, (pair, score) in enumerate(zip(pairs, scores, strict=True), 1)
        if score.strip()
    ]
    return _graded(texts, rows)


def read_sts_benchmark(folder: str | Path, split: SplitName) -> GradedPairs:
    """Read one split of STS-B.

    The columns have no header: genre, file, year, number, score, two sentences (and sometimes their sources).
    """
    path = Path(folder) / "STS" / "STSBenchmark" / f"sts-{split}.csv"
    rows = []
    for number, line in enumerate(_lines(path), 1):
        fields = _fields(path, number, line, 7)
        rows.append((*_sentences(path, number, fields[5:7]), _grade(path, number, fields[4])))
    return _graded(path, rows)


def read_sick(folder: str | Path, split: SplitName) -> GradedPairs:
    """Read the relatedness scores of one split of SICK.

    The columns have a header: pair_ID, sentence_A, sentence_B, relatedness_score, entailment_judgment.
    """
    path = Path(folder) / "SICK" / _SICK[split]
    rows = []
    for number, line in enumerate(_under_header(path, "pair_ID"), 2):
        fields = _fields(path, number, line, 4)
        rows.append((*_sentences(path, number, fields[1:3]), _grade(path, number, fields[3])))
    return _graded(path, rows)


def _graded(path: Path, rows: Sequence[tuple[str, str, float]]) -> GradedPairs:
    if not rows:
        raise UsageError(f"{path}: none of its pairs has a grade")
    return GradedPairs([r[0] for r in rows], [r[1] for r in rows], np.array([r[2] for r in rows], dtype=np.float64))


# --- classified sentences ---------------------------------------------------------------------------------------


def read_binary_task(folder: str | Path, task: str) -> LabeledSentences:
    """Read sentences of two opposite classes, one file for each class.

    The tasks are reviews (MR, CR), opinions (MPQA), and subjective or objective sentences (SUBJ). There is no
    official split. One line of CR and one of MPQA are empty. Every published number counts them, so they are
    read as a full stop.
    """
    if task not in _POLAR:
        raise UsageError(f"unknown task with two classes {task!r}: use one of {', '.join(_POLAR)}")
    paths = [Path(folder) / task / name for name in _POLAR[task]]
    texts = [[line.strip() or "." for line in _lines(path, "latin-1")] for path in paths]
    labels = np.repeat(np.arange(2), [len(t) for t in texts])
    return LabeledSentences(texts[0] + texts[1], labels, tuple(p.name.split(".")[1] for p in paths))


def read_sst(folder: str | Path, split: SplitName, fine_grained: bool = False) -> LabeledSentences:
    """Read one split of Stanford's sentiment treebank.

    The classes are negative and positive (`sentence TAB label`), or five grades (`label sentence`).
    """
    path = Path(folder) / "SST" / ("fine" if fine_grained else "binary") / f"sentiment-{split}"
    classes = tuple("01234") if fine_grained else tuple("01")
    texts, labels = [], []
    for number, line in enumerate(_lines(path), 1):
        label, text = line.partition(" ")[::2] if fine_grained else line.rpartition("\t")[::-2]
        texts.append(_sentence(path, number, text))
        labels.append(_class(path, number, label, classes))
    return LabeledSentences(texts, np.array(labels), classes)


def read_trec(folder: str | Path, split: Literal["train", "test"]) -> LabeledSentences:
    """Read questions with the kind of their answer as the class.

    Lines have the form `COARSE:fine question`. The six coarse kinds are the classes.
    """
    path = Path(folder) / "TREC" / {"train": "train_5500.label", "test": "TREC_10.label"}[split]
    texts, labels = [], []
    for number, line in enumerate(_lines(path, "latin-1"), 1):
        kind, _, text = line.partition(" ")
        texts.append(_sentence(path, number, text))
        labels.append(_class(path, number, kind.partition(":")[0], _TREC_CLASSES))
    return LabeledSentences(texts, np.array(labels), _TREC_CLASSES)


# --- classified pairs -------------------------------------------------------------------------------------------


def read_mrpc(folder: str | Path, split: Literal["train", "test"]) -> LabeledPairs:
    """Read Microsoft's paraphrase pairs.

    The columns have a header: Quality, two ids, two sentences. Some copies keep the last 500 training pairs
    in `msr-para-val.tsv`. These pairs are joined again: the splits have 4,076 and 1,725 pairs.
    """
    home, classes = Path(folder) / "MRPC", tuple("01")
    paths = [home / f"msr_paraphrase_{split}.txt"]
    if not paths[0].is_file():
        paths = [home / f"msr-para-{part}.tsv" for part in (("train", "val") if split == "train" else ("test",))]
    first, second, labels = [], [], []
    for path in paths:
        for number, line in enumerate(_under_header(path, "Quality"), 2):
            fields = _fields(path, number, line, 5)
            a, b = _sentences(path, number, fields[3:5])
            first.append(a)
            second.append(b)
            labels.append(_class(path, number, fields[0], classes))
    return LabeledPairs(first, second, np.array(labels), classes)


def read_snli(folder: str | Path, split: SplitName) -> LabeledPairs:
    """Read Stanford's inference pairs (premise, hypothesis, label).

    They are in three files, line by line.
    """
    paths = [Path(folder) / "SNLI" / f"{name}.{split}" for name in ("s1", "s2", "labels")]
    first, second, labels = (_lines(path) for path in paths)
    if not len(first) == len(second) == len(labels):
        raise UsageError(
            f"{paths[0].parent}: s1.{split}, s2.{split}, labels.{split} have {len(first)}, {len(second)} and {len(labels)} lines: "
            "each must have one line for each pair"
        )
    return LabeledPairs(
        [_sentence(paths[0], i, text) for i, text in enumerate(first, 1)],
        [_sentence(paths[1], i, text) for i, text in enumerate(second, 1)],
        np.array([_class(paths[2], i, label, _SNLI_CLASSES) for i, label in enumerate(labels, 1)]),
        _SNLI_CLASSES,
    )


# --- lines ------------------------------------------------------------------------------------------------------


def _lines(path: Path, encoding: Literal["utf-8", "latin-1"] = "utf-8") -> list[str]:
    """Return the lines of a file, without byte order mark and line ends.

    Only line feeds end a line, because some sentences contain rarer line breaks.
    """
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError as e:
        raise UsageError(
            f"there is no file {path}: name the folder of SentEval's data (it holds STS, SICK, MR, SST, …; SentEval's script "
            "get_transfer_data.bash creates it as data/downstream)"
        ) from e
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UsageError(f"{path} is empty: an incomplete download?")
    return [_decoded(path, number, line, encoding) for number, line in enumerate(lines, 1)]


def _decoded(path: Path, number: int, line: bytes, encoding: str) -> str:
    try:
        return line.rstrip(b"\r").decode(encoding)
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}, line {number}: not UTF-8 ({e.reason} at byte {e.start})") from e


def _under_header(path: Path, first: str) -> list[str]:
    header, *lines = _lines(path)
    if not header.startswith(first):
        raise UsageError(f"{path}, line 1: expected a header that begins with {first!r}, found {header[:60]!r}")
    if not lines:
        raise UsageError(f"{path} ends after its header: an incomplete download?")
    return lines


def _fields(path: Path, number: int, line: str, least: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < least:
        raise UsageError(f"{path}, line {number}: expected {least} fields between tabs, found {len(fields)}: {line[:60]!r}")
    return fields


def _sentences(path: Path, number: int, texts: Sequence[str]) -> tuple[str, str]:
    first, second = (_sentence(path, number, text) for text in texts)
    return first, second


def _sentence(path: Path, number: int, text: str) -> str:
    if not text.strip():
        raise UsageError(f"{path}, line {number}: a sentence is empty")
    return text.strip()


def _grade(path: Path, number: int, text: str) -> float:
    try:
        grade = float(text)
    except ValueError:
        grade = float("nan")
    if not 0 <= grade <= 5:
        raise UsageError(f"{path}, line {number}: expected a score from 0 to 5, found {text[:60]!r}")
    return grade


def _class(path: Path, number: int, label: str, classes: tuple[str, ...]) -> int:
    if label.strip() not in classes:
        raise UsageError(f"{path}, line {number}: expected one of {', '.join(classes)} as the class, found {label[:60]!r}")
    return classes.index(label.strip())
