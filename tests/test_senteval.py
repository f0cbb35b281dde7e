"""SentEval's layouts, written in small, broken in every way, and the real files where they are at hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from senteval_files import sentence, write, write_senteval

from nearfar.core import UsageError
from nearfar.data.text.senteval import (
    STS_PARTS,
    STS_SETS,
    read_binary_task,
    read_mrpc,
    read_sick,
    read_snli,
    read_sst,
    read_sts,
    read_sts_benchmark,
    read_trec,
)


@pytest.fixture
def folder(tmp_path):
    return write_senteval(tmp_path)


@pytest.fixture
def real(data_folder) -> Path:
    folder = data_folder / "senteval"
    if not folder.is_dir():
        pytest.skip(f"no {folder} (set NEARFAR_DATA)")
    return folder


def test_a_year_is_read_file_by_file_and_pairs_without_a_grade_are_left_out(folder):
    sts = read_sts(folder, "STS14")
    assert tuple(sts) == STS_PARTS["STS14"]
    news = sts["deft-news"]
    kept = [0, 1, 2, 4, 5, 6, 7]
    assert news.first == [sentence(i + 1) for i in kept]
    assert news.second == [sentence(2 * i) for i in kept]
    np.testing.assert_allclose(news.score, [round((i * 1.7 + 1) % 5, 2) for i in kept])


def test_sts_benchmark_and_sick_have_three_splits(folder):
    train = read_sts_benchmark(folder, "train")
    assert (train.first[0], train.second[0], train.score[1]) == (sentence(0), sentence(0), 0.9)
    assert read_sts(folder, "STS-B")["test"].score[0] == 2
    for split in ("train", "dev", "test"):
        assert read_sick(folder, split).score.tolist() == [1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert read_sts(folder, "SICK-R")["test"].second[0] == sentence(2), "Windows' line ends are no part of a field"


def test_classified_sentences(folder):
    mr = read_binary_task(folder, "MR")
    assert mr.classes == ("neg", "pos")
    assert all(text.startswith(("bad", "good")[y]) and not text.endswith(" ") for text, y in zip(mr.texts, mr.labels, strict=True))
    assert read_binary_task(folder, "SUBJ").classes == ("objective", "subjective")
    sst = read_sst(folder, "dev")
    assert sst.texts[1] == f"good {sentence(1)}"
    assert sst.labels.tolist() == [i % 2 for i in range(20)]
    assert read_sst(folder, "dev", fine_grained=True).labels.tolist() == [i % 5 for i in range(20)]
    trec = read_trec(folder, "test")
    assert trec.texts[0].startswith("abb café a"), "TREC is Latin-1"
    assert trec.labels.tolist() == [i % 6 for i in range(60)]


def test_an_empty_line_of_opinions_counts_as_a_full_stop(folder):
    write(folder / "CR" / "custrev.neg", ["poor", "", "weak"])
    assert read_binary_task(folder, "CR").texts[:3] == ["poor", ".", "weak"]


def test_classified_pairs(folder):
    train = read_mrpc(folder, "train")
    assert len(train) == 40, "the validation rows are training rows"
    assert train.first == [sentence(i) for i in range(40)]
    assert train.labels.tolist() == [i % 2 for i in range(40)]
    snli = read_snli(folder, "dev")
    assert [snli.classes[y] for y in snli.labels] == ["neutral", "entailment", "contradiction"] * 2
    assert snli.second[0] == sentence(1)


def test_paraphrases_under_their_own_name_are_preferred(folder):
    write(folder / "MRPC" / "msr_paraphrase_train.txt", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t1\t2\tan egg\tone egg"])
    assert read_mrpc(folder, "train").second == ["one egg"]


def test_only_line_feeds_end_a_line(folder):
    write(folder / "STS" / "STS13-en-test" / "STS.input.FNWN.txt", [f"odd\u2028break {i}\tsecond\x85part" for i in range(8)])
    assert read_sts(folder, "STS13")["FNWN"].first[0] == "odd\u2028break 0"


BROKEN = {
    "too few fields": ("STS/STS12-en-test/STS.input.MSRpar.txt", 2, "only one sentence", lambda f: read_sts(f, "STS12"), "2 fields"),
    "no number": ("STS/STS12-en-test/STS.gs.MSRvid.txt", 5, "four", lambda f: read_sts(f, "STS12"), "score from 0 to 5, found 'four'"),
    "out of range": ("STS/STS16-en-test/STS.gs.headlines.txt", 1, "7.0", lambda f: read_sts(f, "STS16"), "score from 0 to 5"),
    "not a number": ("STS/STS15-en-test/STS.gs.belief.txt", 8, "nan", lambda f: read_sts(f, "STS15"), "score from 0 to 5"),
    "benchmark": ("STS/STSBenchmark/sts-dev.csv", 4, "a\tb\tc\td\t3", lambda f: read_sts_benchmark(f, "dev"), "7 fields.*found 5"),
    "empty sentence": ("SICK/SICK_train.txt", 3, "1\t \ttext\t3\tNEUTRAL", lambda f: read_sick(f, "train"), "sentence is empty"),
    "header": ("SICK/SICK_trial.txt", 1, "1\ta\tb\t3\tNEUTRAL", lambda f: read_sick(f, "dev"), "header"),
    "class": ("SST/binary/sentiment-dev", 2, "a text\t2", lambda f: read_sst(f, "dev"), "one of 0, 1"),
    "no tab": ("SST/binary/sentiment-test", 2, "a text 1", lambda f: read_sst(f, "test"), "sentence is empty|one of 0, 1"),
    "fine class": ("SST/fine/sentiment-dev", 6, "5 a text", lambda f: read_sst(f, "dev", True), "one of 0, 1, 2, 3, 4"),
    "kind": ("TREC/TREC_10.label", 3, "WHAT:is this ?", lambda f: read_trec(f, "test"), "one of ABBR"),
    "quality": ("MRPC/msr-para-val.tsv", 2, "yes\t1\t2\ta\tb", lambda f: read_mrpc(f, "train"), "one of 0, 1"),
    "inference": ("SNLI/labels.test", 6, "-", lambda f: read_snli(f, "test"), "one of contradiction"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_row_is_named_by_file_and_line(folder, name):
    path, number, row, read, complaint = BROKEN[name]
    lines = (folder / path).read_bytes().split(b"\n")
    lines[number - 1] = row.encode()
    (folder / path).write_bytes(b"\n".join(lines))
    with pytest.raises(UsageError, match=f"{re.escape(str(folder / path))}, line {number}: .*({complaint})"):
        read(folder)


def test_bytes_that_are_no_text_are_named_too(folder):
    path = folder / "SNLI" / "s2.dev"
    path.write_bytes(b"fine\n\xff\xfe\n" + b"more\n" * 4)
    with pytest.raises(UsageError, match=r"s2\.dev, line 2: not UTF-8"):
        read_snli(folder, "dev")


def test_files_that_do_not_belong_together(folder):
    write(folder / "STS" / "STS12-en-test" / "STS.gs.MSRpar.txt", ["1", "2"])
    with pytest.raises(UsageError, match=r"MSRpar\.txt has 8 lines, .*gs\.MSRpar\.txt has 2"):
        read_sts(folder, "STS12")
    write(folder / "SNLI" / "s1.dev", ["one"])
    with pytest.raises(UsageError, match="1, 6 and 6 lines"):
        read_snli(folder, "dev")


def test_missing_empty_and_unknown(folder, tmp_path):
    with pytest.raises(UsageError, match=r"no file .*nowhere.*name the folder of SentEval's data"):
        read_sts(tmp_path / "nowhere", "STS12")
    (folder / "MR" / "rt-polarity.pos").write_bytes(b"")
    with pytest.raises(UsageError, match=r"rt-polarity\.pos is empty"):
        read_binary_task(folder, "MR")
    write(folder / "STS" / "STS12-en-test" / "STS.gs.MSRpar.txt", [""] * 8)
    with pytest.raises(UsageError, match="none of its pairs has a grade"):
        read_sts(folder, "STS12")
    with pytest.raises(UsageError, match="unknown sentence similarity dataset 'STS17'"):
        read_sts(folder, "STS17")
    with pytest.raises(UsageError, match="unknown task with two classes 'IMDB'"):
        read_binary_task(folder, "IMDB")


def test_the_real_graded_pairs_have_their_published_sizes(real):
    sizes = {name: sum(map(len, read_sts(real, name).values())) for name in STS_SETS}
    assert sizes == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STS-B": 1379, "SICK-R": 4927}
    assert [len(read_sts_benchmark(real, s)) for s in ("train", "dev", "test")] == [5749, 1500, 1379]
    assert [len(read_sick(real, s)) for s in ("train", "dev", "test")] == [4500, 500, 4927]
    first = read_sts_benchmark(real, "test")
    assert (first.first[0], first.second[0], first.score[0]) == ("A girl is styling her hair.", "A girl is brushing her hair.", 2.5)


def test_the_real_classified_sentences_have_their_published_sizes(real):
    polar = {task: np.bincount(read_binary_task(real, task).labels).tolist() for task in ("MR", "CR", "SUBJ", "MPQA")}
    assert polar == {"MR": [5331, 5331], "CR": [1368, 2407], "SUBJ": [5000, 5000], "MPQA": [7294, 3312]}
    assert [len(read_sst(real, s)) for s in ("train", "dev", "test")] == [67349, 872, 1821]
    assert [len(read_sst(real, s, fine_grained=True)) for s in ("train", "dev", "test")] == [8544, 1101, 2210]
    assert [len(read_trec(real, s)) for s in ("train", "test")] == [5452, 500]
    assert [np.bincount(read_mrpc(real, s).labels).tolist() for s in ("train", "test")] == [[1323, 2753], [578, 1147]]
    assert [len(read_snli(real, s)) for s in ("dev", "test")] == [9842, 9824]
