"""SentEval's transfer tasks: classifiers on frozen sentence vectors. --data names SentEval's folder."""

from __future__ import annotations

from pathlib import Path

from nearfar.api.suite_subject import Subject, SuiteRow
from nearfar.core import RandomKey
from nearfar.core.errors import UsageError
from nearfar.evaluate.lexical_baselines import build_random_word_encoder
from nearfar.evaluate.senteval_transfer import TRANSFER_TASKS, measure_transfer

FOLDER_OF_TASK = {"SST": "SST"}
"""Folder of a task, if it is not named like the task."""


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    return subject.explain_missing_texts("SentEval's folder")


def measure(subject: Subject) -> list[SuiteRow]:
    """Measure the tasks whose folders are there."""
    folder, rows = Path(subject.data), []
    tasks = [task for task in TRANSFER_TASKS if (folder / FOLDER_OF_TASK.get(task, task)).is_dir()]
    if not tasks:
        raise UsageError(f"--data {folder}: there is no folder of a transfer task ({', '.join(TRANSFER_TASKS)})")
    rng_key = RandomKey(subject.seed)("evaluate", "senteval")
    encoders = {"random word vectors": build_random_word_encoder(rng_key("words")), **subject.get_text_encoders()}
    for system, encode in encoders.items():
        for found in measure_transfer(folder, encode, rng_key, tasks):
            rows.append(SuiteRow("senteval", system, found.task, found.accuracy))
            if found.f1 is not None:
                rows.append(SuiteRow("senteval", system, f"{found.task} F1", found.f1))
    subject.protocol["senteval"] = "accuracy of logistic regression; penalties chosen without test rows, as in SentEval"
    return rows
