"""Loading of triples: from a user's data to a training and a test split."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.named_samples import check_names
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.samples.python_triples import make_python_triples
from nearfar.data.text.readers import RowCollector
from nearfar.data.triples.dataset import NumberedTriple, Triple, TripleIds, Triples
from nearfar.data.triples.readers import read_triples

SPLITS = ("train", "valid", "test")


def load_triples(
    spec: Any,
    *,
    seed: int = 0,
    test_ids: Sequence[int] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    on_error: str = "stop",
) -> Splits:
    """Load triples as a training and a test split.

    Args:
        spec: a folder, a file, 'python', a list of (head, relation, tail), or `Triples`.
        seed: random seed of the split if the source has none.
        test_ids: test rows stored by an earlier run, if the source has no split.
        names: entities and relations of a trained model. Other names are errors.
        on_error: "stop" to raise at a triple that cannot be read or has an unknown name, "skip" to omit it.

    Raises:
        UsageError: the source is missing or too small, or a triple is broken. The message names its position.
    """
    if isinstance(spec, Triples):
        return Splits(spec, None)
    rows = RowCollector(on_error)
    if not isinstance(spec, (str, os.PathLike)):
        listed = list(_from_python(spec, rows))
        return _split_list(listed, f"list of {len(spec)} triples", seed, test_ids, names, rows)
    text = os.fspath(spec)
    if text == "python":
        return _split_list(enumerate(make_python_triples(), 1), text, seed, test_ids, names, rows)
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise build_missing_data_error(text, ["python"], "triples")
    if path.is_dir():
        return _from_folder(path, text, names, rows)
    return _split_list(read_triples(path, rows), text, seed, test_ids, names, rows)


def _from_python(spec: Any, collector: RowCollector) -> Iterator[NumberedTriple]:
    if not isinstance(spec, (list, tuple)) or not spec:
        raise UsageError(f"cannot read triples from a {type(spec).__name__}: give a name, a file, a folder or a list of triples")
    for i, triple in enumerate(spec):
        if isinstance(triple, (list, tuple)) and len(triple) == 3 and all(isinstance(x, str) and x for x in triple):
            yield i, (triple[0], triple[1], triple[2])
            continue
        wrong = f"triple {i}: expected three names (head, relation, tail), found {str(triple)[:80]}"
        if collector.on_error == "stop":
            raise UsageError(wrong)
        collector.skipped.append(wrong)


def _from_folder(path: Path, source: str, names: tuple[Sequence[str], Sequence[str]] | None, collector: RowCollector) -> Splits:
    files = {split: path / f"{split}.txt" for split in SPLITS}
    for split in ("train", "test"):
        if not files[split].is_file():
            raise UsageError(f"the folder {path} has no {split}.txt: train.txt, valid.txt and test.txt were expected, or name one file")
    numbered = {split: list(read_triples(file, collector)) for split, file in files.items() if file.is_file()}
    if not numbered["train"]:
        raise NearfarError(f"{files['train']}: no triples in it")
    learnt = {triple for _, triple in numbered["train"]}
    numbered |= {
        split: _drop_training_triples(lines, learnt, files[split], collector) for split, lines in numbered.items() if split != "train"
    }
    entities, relations = names or _collect_names(learnt)
    places = _number_names(entities), _number_names(relations)
    facts = {split: _to_ids(lines, *places, files[split], collector) for split, lines in numbered.items()}
    known = np.concatenate(list(facts.values()))
    valid = facts.get("valid", np.zeros((0, 3), dtype=np.int64))
    train = Triples(tuple(entities), tuple(relations), facts["train"], valid, known, source, tuple(collector.skipped))
    return Splits(train, replace(train, triples=facts["test"]) if len(facts["test"]) else None)


def _drop_training_triples(
    lines: list[NumberedTriple], train_triples: set[Triple], file: Path, collector: RowCollector
) -> list[NumberedTriple]:
    """Remove training triples, because ranking them measures memory.

    Each removed triple is reported to `collector`.
    """
    collector.start_file(str(file))
    known = [number for number, triple in lines if triple in train_triples]
    for number in known:
        collector.reject_row(number, f"{len(known):,} of its {len(lines):,} triples are also training triples, and this is one of them")
    return [(number, triple) for number, triple in lines if triple not in train_triples]


def _split_list(
    numbered: Iterable[NumberedTriple],
    source: str,
    seed: int,
    stored_test_ids: Sequence[int] | None,
    names: tuple[Sequence[str], Sequence[str]] | None,
    collector: RowCollector,
) -> Splits:
    """Split one list of triples, each counted once.

    The test rows are the stored ones, or one in five of the rows that can be held out.
    """
    line: dict[Triple, int] = {}
    for number, triple in numbered:
        line.setdefault(triple, number)
    entities, relations = names or _collect_names(line)
    known = _to_ids(
        ((number, triple) for triple, number in line.items()), _number_names(entities), _number_names(relations), source, collector
    )
    if len(known) < 2:
        raise UsageError(f"{source} has {len(known)} triples; at least 2 are needed")
    drawn = np.array(split_train_test(Splits(_TripleRows(known, source), None), seed, stored_test_ids).test_ids, dtype=np.int64)
    test_ids = _keep_answerable(known, drawn) if stored_test_ids is None else drawn
    nothing = np.zeros((0, 3), dtype=np.int64)
    train = Triples(tuple(entities), tuple(relations), np.delete(known, test_ids, axis=0), nothing, known, source, tuple(collector.skipped))
    return Splits(train, replace(train, triples=known[test_ids]) if len(test_ids) else None, test_ids.tolist())


@dataclass(frozen=True, eq=False)
class _TripleRows:
    """Triples as samples, for splitting."""

    triples: TripleIds
    source: str
    labels: None = None

    def __len__(self) -> int:
        return len(self.triples)

    def subset(self, ids: np.ndarray) -> _TripleRows:
        """Return the chosen rows."""
        return replace(self, triples=self.triples[ids])


def _keep_answerable(known: TripleIds, drawn: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " k"]:
    """Keep drawn rows whose entities and relation also occur in other rows.

    A method cannot rank names that it never saw.
    """
    left = np.delete(known, drawn, axis=0)
    entities, relations = np.unique(left[:, [0, 2]]), np.unique(left[:, 1])
    test = known[drawn]
    return drawn[np.isin(test[:, [0, 2]], entities).all(1) & np.isin(test[:, 1], relations)]


def _collect_names(triples: Iterable[Triple]) -> tuple[list[str], list[str]]:
    """Collect entities and relations in alphabetical order."""
    entities: set[str] = set()
    relations: set[str] = set()
    for head, relation, tail in triples:
        entities.update((head, tail))
        relations.add(relation)
    return check_names(sorted(entities)), sorted(relations)


def _number_names(names: Sequence[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _to_ids(
    lines: Iterable[NumberedTriple], entities: dict[str, int], relations: dict[str, int], source: Any, collector: RowCollector
) -> TripleIds:
    """Convert names to numbers.

    Triples with an unknown name are reported to `collector`.
    """
    found: list[tuple[int, int, int]] = []
    collector.start_file(str(source))
    for number, (head, relation, tail) in lines:
        parts = ((head, entities, "entity"), (relation, relations, "relation"), (tail, entities, "entity"))
        strange = next((f"{what} {name!r}" for name, known, what in parts if name not in known), None)
        if strange:
            collector.reject_row(number, f"the {strange} occurs in no training triple, so it has no vector")
        else:
            found.append((entities[head], relations[relation], entities[tail]))
    return np.array(found, dtype=np.int64).reshape(-1, 3)
