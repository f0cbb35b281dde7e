"""SentEval's folder in small, written file by file in the authors' layouts."""

from __future__ import annotations

from pathlib import Path

from nearfar.data.text.senteval import STS_PARTS

TEXT = "a cat sat on the mat while two dogs ran across red fields and one bird sang its old song near some quiet water"
WORDS = TEXT.split()


def sentence(i: int) -> str:
    return " ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(4 + i % 5))


def write(path: Path, lines: list[str], end: str = "\n", encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))
    return path


def write_senteval(root: Path) -> Path:
    """Every file that the readers read; years have pairs without a grade, SICK's test file has Windows' line ends."""
    for year, parts in STS_PARTS.items():
        for p, part in enumerate(parts):
            home = root / "STS" / f"{year}-en-test"
            write(home / f"STS.input.{part}.txt", [f"{sentence(i + p)}\t{sentence(2 * i)}" for i in range(8)])
            write(home / f"STS.gs.{part}.txt", ["" if i == 3 else f"{(i * 1.7 + p) % 5:.2f}" for i in range(8)])
    for s, split in enumerate(("train", "dev", "test")):
        rows = [f"main-news\tMSRpar\t2012\t{i:04}\t{(i * 0.9 + s) % 5:.3f}\t{sentence(i)}\t{sentence(i + s)}" for i in range(6)]
        write(root / "STS" / "STSBenchmark" / f"sts-{split}.csv", [rows[0] + "\ta source\tanother", *rows[1:]])
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for name, end in (("SICK_train", "\n"), ("SICK_trial", "\n"), ("SICK_test_annotated", "\r\n")):
        write(
            root / "SICK" / f"{name}.txt",
            [header, *(f"{i}\t{sentence(i)}\t{sentence(i + 2)}\t{1 + i / 2}\tNEUTRAL" for i in range(7))],
            end,
        )
    _write_classified(root)
    return root


def _write_classified(root: Path) -> None:
    for path in ("MR/rt-polarity", "CR/custrev", "MPQA/mpqa"):
        for kind, word in (("neg", "bad"), ("pos", "good")):
            write(root / f"{path}.{kind}", [f"{word} {sentence(i)} " for i in range(20)])
    for kind in ("objective", "subjective"):
        write(root / "SUBJ" / f"subj.{kind}", [f"{kind} {sentence(i)}" for i in range(20)])
    for split in ("train", "dev", "test"):
        write(root / "SST" / "binary" / f"sentiment-{split}", [f"{'good' if i % 2 else 'bad'} {sentence(i)} \t{i % 2}" for i in range(20)])
        write(root / "SST" / "fine" / f"sentiment-{split}", [f"{i % 5} {sentence(i)}" for i in range(20)])
        write(root / "SNLI" / f"s1.{split}", [sentence(i) for i in range(6)])
        write(root / "SNLI" / f"s2.{split}", [sentence(i + 1) for i in range(6)])
        write(root / "SNLI" / f"labels.{split}", ["neutral", "entailment", "contradiction"] * 2)
    kinds = ("ABBR:exp", "DESC:manner", "ENTY:animal", "HUM:ind", "LOC:city", "NUM:dist")
    for name in ("train_5500", "TREC_10"):
        lines = [f"{kinds[i % 6]} {kinds[i % 6][:3].lower()} café {sentence(i)} ?" for i in range(60)]
        write(root / "TREC" / f"{name}.label", lines, encoding="latin-1")
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    pairs = [f"{i % 2}\t{i}\t{i + 1}\t{sentence(i)}\t{sentence(i if i % 2 else i + 3)}" for i in range(40)]
    for part, rows, mark in (("train", pairs[:30], "\ufeff"), ("val", pairs[30:], ""), ("test", pairs[:20], "\ufeff")):
        write(root / "MRPC" / f"msr-para-{part}.tsv", [mark + header, *rows], "\r\n")
