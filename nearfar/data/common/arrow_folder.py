"""Reader of folders written by `datasets.Dataset.save_to_disk`.

Such a folder holds Arrow streams, and JSON files with the names of columns and classes:

    state.json           files of this split, in order
    dataset_info.json    types of the columns; for a ClassLabel, the names of its classes
    data-*.arrow         rows
    dataset_dict.json    in a folder of several splits: their names; each split is a sub-folder

The files are read with pyarrow. The package that wrote them is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearfar.core.errors import UsageError
from nearfar.data.common.text_tables import NumberedRow


def is_dataset_folder(path: Path) -> bool:
    """Return True if the folder holds the files that `save_to_disk` writes."""
    return (path / "dataset_dict.json").is_file() or ((path / "state.json").is_file() and (path / "dataset_info.json").is_file())


def read_dataset_folder(path: Path) -> dict[str, Iterator[NumberedRow]]:
    """Return an iterator over the rows of each split.

    Rows are numbered from 1. A folder of a single dataset is one split named train.
    """
    if not (path / "dataset_dict.json").is_file():
        return {"train": _rows(path)}
    names = _field(path / "dataset_dict.json", "splits", list)
    return {str(name): _rows(path / str(name)) for name in names}


def _rows(folder: Path) -> Iterator[NumberedRow]:
    """Yield the numbered rows of one split.

    Class numbers are replaced by class names if the dataset names its classes.
    """
    files = [str(part["filename"]) for part in _field(folder / "state.json", "_data_files", list)]
    features = _field(folder / "dataset_info.json", "features", dict)
    classes = {column: f["names"] for column, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"}
    number = 0
    for file in files:
        for row in _stream(folder, file):
            number += 1
            named = {c: names[row[c]] for c, names in classes.items() if isinstance(row.get(c), int) and 0 <= row[c] < len(names)}
            yield number, row | named


def _stream(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    path = folder / name
    if path.parent != folder:
        raise UsageError(f"{folder / 'state.json'}: {name!r} is not the name of a file in that folder")
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from e


def _field(path: Path, name: str, kind: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError, AttributeError) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from e
    if not isinstance(found, kind):
        raise UsageError(f"{path}: it has no valid {name!r}; is this a folder that `save_to_disk` wrote?")
    return found
