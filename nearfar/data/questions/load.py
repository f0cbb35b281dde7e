"""Loading of questions with passages from a user's data."""

from __future__ import annotations

import os
from pathlib import Path

from nearfar.core.errors import UsageError
from nearfar.data.common.text_tables import TABLE_READERS
from nearfar.data.questions.dataset import Questions, QuestionsBuilder
from nearfar.data.questions.readers import read_question_rows, read_squad_file
from nearfar.data.text.readers import RowCollector


def load_questions(path: str | os.PathLike, on_error: str = "stop") -> Questions:
    """Load a file of questions in any supported layout.

    An error names the file and the line of a broken row, or its position in SQuAD's JSON.

    Args:
        path: .json file in the SQuAD layout, or a table.
        on_error: "stop" to raise at a broken row, "skip" to omit it and list it in `skipped`.

    Raises:
        UsageError: the file is missing, has an unknown layout, or a row is broken.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UsageError(f"no questions {os.fspath(path)!r}: there is no such file")
    collected = RowCollector(on_error)
    collected.start_file(file.name)
    found = QuestionsBuilder()
    if file.suffix.lower() == ".json":
        read_squad_file(file, found, collected)
    elif file.suffix.lower() in TABLE_READERS:
        read_question_rows(file, found, collected)
    else:
        raise UsageError(f"cannot read questions from {file}: give SQuAD's .json, or a table that ends in {' or '.join(TABLE_READERS)}")
    return found.build(os.fspath(path), collected.skipped)
