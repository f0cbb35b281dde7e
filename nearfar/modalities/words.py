"""Words are measured by what people say about them, where files of that are named; else by how their vectors lie."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import Tensor

from nearfar.api.evaluate import splits_of
from nearfar.core import Key, UsageError
from nearfar.data import Splits
from nearfar.data.common.names import every_name
from nearfar.data.words.dataset import Corpus
from nearfar.evaluate import Features, Table, compare
from nearfar.evaluate.isotropy import cosine_moments
from nearfar.evaluate.word_similarity import Answers, agreement, analogies, read_analogies, read_judged
from nearfar.modalities.interface import Evaluation, Progress
from nearfar.modalities.named_rows import TableKind, evaluation, every_row, names_of, nearest_names, protocol, row
from nearfar.train.model import Trained

AMONG = 30_000
"""Analogies are asked and answered among the most frequent words, as is the custom."""
QUOTED = 5
"""Words whose neighbours are named below the table."""


class WordKind(TableKind):
    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation:
        rows = {"untrained table": every_row(trained.untrained()), "trained table": every_row(trained)}
        if data is None:
            return evaluation(trained, _geometry(trained, rows), splits_of(trained, None, progress))
        assert trained.tokenizer is not None
        words = every_name(trained.tokenizer)
        return evaluation(trained, _judged(trained, rows, judged_files(data)), Splits(words, None))

    def summary(self, train: Corpus) -> str:
        return f"{len(train.tokens):,} words of running text, {len(train):,} different ones"


def _geometry(trained: Trained, rows: dict[str, Tensor]) -> Table:
    """Nothing in running text says what a word should be near: shown is whether the vectors use their space, and who is near whom."""
    found = {name: Features(x, x, baseline=name != "trained table") for name, x in rows.items()}
    table = compare(found, key=Key(trained.run.seed)("evaluate"), checkpoint=f"step {trained.step} of {trained.run.steps}")
    means = {name: cosine_moments(x)[0] for name, x in rows.items()}
    notes = [
        "Running text has no test split. --data FOLDER with WordSim-353, SimLex-999 or Google's analogies compares with people.",
        f"Mean cosine of two words: {', '.join(f'{name} {mean:.3f}' for name, mean in means.items())} (0: all directions alike).",
        f"Nearest to the most frequent words: {'; '.join(nearest_names(trained, QUOTED))}.",
    ]
    return Table(table.results, table.protocol | protocol(trained, notes))


def judged_files(data: Any) -> list[Path]:
    """The files of judgements in a folder, or the one that is named."""
    path = Path(data).expanduser() if isinstance(data, (str, Path)) else None
    if path is None or not path.exists():
        raise UsageError(f"no judgements at {data!r}: name a folder with files such as WordSim-353, SimLex-999 or Google's analogies")
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in (".txt", ".tsv", ".csv"))
    files = [file for file in files if not file.name.lower().startswith(("readme", "license"))]
    if not files:
        raise UsageError(f"the folder {path} has no .txt, .tsv or .csv files of judgements")
    return files


def _judged(trained: Trained, rows: dict[str, Tensor], files: list[Path]) -> Table:
    number, stems = names_of(trained), [file.stem for file in files]
    results = [row(name, name != "trained table", x) for name, x in rows.items()]
    titles, notes = {}, ["In per cent: Spearman's correlation of cosines with judgements, or right answers to analogies (3CosAdd)."]
    for file in files:
        asked = _is_analogies(file)
        sections, pairs = (read_analogies(file), None) if asked else (None, read_judged(file))
        covered = total = 0
        for result, x in zip(results, rows.values(), strict=True):
            if sections is not None:
                found = sum(analogies(x, number, sections, AMONG).values(), Answers(0, 0, 0))
                value, covered, total = found.accuracy, found.covered, found.questions
            else:
                assert pairs is not None
                agreed = agreement(x, number, pairs)
                value, covered, total = agreed.spearman, agreed.covered, agreed.pairs
            if not math.isnan(value):
                result[f"file {file.name}"] = value
        titles[f"file {file.name}"] = file.stem if stems.count(file.stem) == 1 else file.name
        notes.append(f"{file.name}: {covered:,} of {total:,} {'questions' if asked else 'pairs'} are of known words.")
    return Table(results, protocol(trained, notes, accuracies=titles))


def _is_analogies(file: Path) -> bool:
    """Google's file names its sections: ': capital-common-countries'."""
    with file.open("rb") as lines:
        return next((line for line in lines if line.strip() and not line.startswith(b"#")), b"").startswith(b":")
