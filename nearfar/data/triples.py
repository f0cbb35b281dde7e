"""Knowledge as triples (head, relation, tail): one a line, its three names separated by tabs.

a folder        train.txt and test.txt, valid.txt if there is one; entities and relations are those of train.txt
a file          all triples; a part is set aside for testing, of which every name also occurs in what is left
'python'        what Python's standard library says of its own classes
in Python       a list of (head, relation, tail)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.lines import numbered_lines
from nearfar.data.missing import missing
from nearfar.data.names import Named, check_names
from nearfar.data.pythongraph import python_triples
from nearfar.data.split import Splits, divide
from nearfar.data.stores import digest

Facts = Int64[np.ndarray, "_ 3"]
Triple = tuple[str, str, str]
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Triples(Named):
    """Some true triples. Its samples are the *entities* (what such a method represents): `len`, `read` and `name` speak of them. What
    is drawn from for training are the rows of `triples`."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: Facts
    """Numbers of head, relation and tail."""
    valid: Facts
    """Triples to choose settings by; none where the data bring none."""
    known: Facts
    """Everything that is known to be true, of all splits: what a filtered rank leaves out."""
    source: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return self.entities

    @cached_property
    def fingerprint(self) -> str:
        return digest("\n".join(self.entities + self.relations).encode(), self.triples.tobytes())

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "words": len(self), "relations": list(self.relations)}


def open_triples(
    spec: Any,
    *,
    seed: int = 0,
    split: Sequence[int] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Splits:
    """A training and a test split of triples.

    spec    a folder, a file, 'python', a list of (head, relation, tail), or `Triples`
    split   the rows for testing that an earlier run stored, where the data bring no split of their own
    names   entities and relations of a trained net: others are an error
    """
    if isinstance(spec, Triples):
        return Splits(spec, None)
    if not isinstance(spec, (str, os.PathLike)):
        return _divided(list(_from_python(spec)), f"list of {len(spec)} triples", seed, split, names)
    text = os.fspath(spec)
    if text == "python":
        return _divided(python_triples(), text, seed, split, names)
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise missing(text, ["python"], "triples")
    if path.is_dir():
        return _from_folder(path, text, names)
    return _divided([triple for _, triple in read_lines(path)], text, seed, split, names)


def read_lines(path: Path) -> Iterator[tuple[int, Triple]]:
    """Numbered triples of a file; a line that is none is an error that names it."""
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 3 or not all(fields):
            raise NearfarError(f"{path}, line {number}: head, relation and tail, separated by tabs, were expected, found {line[:80]!r}")
        yield number, (fields[0], fields[1], fields[2])


def _from_python(spec: Any) -> Iterator[Triple]:
    if not isinstance(spec, (list, tuple)) or not spec:
        raise UsageError(f"cannot read triples from a {type(spec).__name__}: give a name, a file, a folder or a list of triples")
    for i, triple in enumerate(spec):
        if not isinstance(triple, (list, tuple)) or len(triple) != 3 or not all(isinstance(x, str) and x for x in triple):
            raise UsageError(f"triple {i}: three names (head, relation, tail) were expected, found {str(triple)[:80]}")
        yield triple[0], triple[1], triple[2]


def _from_folder(path: Path, source: str, names: tuple[Sequence[str], Sequence[str]] | None) -> Splits:
    files = {split: path / f"{split}.txt" for split in SPLITS}
    for split in ("train", "test"):
        if not files[split].is_file():
            raise UsageError(f"the folder {path} has no {split}.txt: train.txt, valid.txt and test.txt were expected, or name one file")
    numbered = {split: list(read_lines(file)) for split, file in files.items() if file.is_file()}
    if not numbered["train"]:
        raise NearfarError(f"{files['train']}: no triples in it")
    entities, relations = names or _names(triple for _, triple in numbered["train"])
    places = _places(entities), _places(relations)
    facts = {split: _numbers(lines, *places, files[split]) for split, lines in numbered.items()}
    known = np.concatenate(list(facts.values()))
    valid = facts.get("valid", np.zeros((0, 3), dtype=np.int64))
    train = Triples(tuple(entities), tuple(relations), facts["train"], valid, known, source)
    return Splits(train, replace(train, triples=facts["test"]) if len(facts["test"]) else None)


def _divided(
    triples: list[Triple], source: str, seed: int, split: Sequence[int] | None, names: tuple[Sequence[str], Sequence[str]] | None
) -> Splits:
    """One list, each triple once, of which rows are set aside: the stored ones, or one in five of those that can be spared."""
    triples = list(dict.fromkeys(triples))
    if len(triples) < 2:
        raise UsageError(f"{source} has {len(triples)} triples; at least 2 are needed")
    entities, relations = names or _names(triples)
    known = _numbers(enumerate(triples, 1), _places(entities), _places(relations), source)
    drawn = np.array(divide(Splits(_Rows(known, source), None), seed, split).test_ids, dtype=np.int64)
    test_ids = _spared(known, drawn) if split is None else drawn
    nothing = np.zeros((0, 3), dtype=np.int64)
    train = Triples(tuple(entities), tuple(relations), np.delete(known, test_ids, axis=0), nothing, known, source)
    return Splits(train, replace(train, triples=known[test_ids]) if len(test_ids) else None, test_ids.tolist())


@dataclass(frozen=True, eq=False)
class _Rows:
    """Triples as samples, to be divided."""

    triples: Facts
    source: str
    labels: None = None

    def __len__(self) -> int:
        return len(self.triples)

    def subset(self, ids: np.ndarray) -> _Rows:
        return replace(self, triples=self.triples[ids])


def _spared(known: Facts, drawn: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " k"]:
    """Of the rows drawn those whose entities and relation occur in other rows too: nobody can rank what was never seen."""
    left = np.delete(known, drawn, axis=0)
    entities, relations = np.unique(left[:, [0, 2]]), np.unique(left[:, 1])
    test = known[drawn]
    return drawn[np.isin(test[:, [0, 2]], entities).all(1) & np.isin(test[:, 1], relations)]


def _names(triples: Iterable[Triple]) -> tuple[list[str], list[str]]:
    """Entities and relations in alphabetical order."""
    entities: set[str] = set()
    relations: set[str] = set()
    for head, relation, tail in triples:
        entities.update((head, tail))
        relations.add(relation)
    return check_names(sorted(entities)), sorted(relations)


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _numbers(lines: Iterable[tuple[int, Triple]], entities: dict[str, int], relations: dict[str, int], source: Any) -> Facts:
    """Names as numbers. A name that is not known is an error that says where it stands."""
    found: list[tuple[int, int, int]] = []
    for number, (head, relation, tail) in lines:
        for name, known, what in ((head, entities, "entity"), (relation, relations, "relation"), (tail, entities, "entity")):
            if name not in known:
                raise NearfarError(
                    f"{source}, line {number}: the {what} {name!r} occurs in no training triple: it has no vector. Leave the line out"
                )
        found.append((entities[head], relations[relation], entities[tail]))
    return np.array(found, dtype=np.int64).reshape(-1, 3)
