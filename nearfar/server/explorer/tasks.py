"""What takes a while is done in the background, once, and says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import JSONResponse, Response

from nearfar.core import NearfarError
from nearfar.server.limits import Refused
from nearfar.server.worker import Worker

Report = Callable[[float], None]


@dataclass
class Task:
    """One thing that is being done."""

    doing: str
    share: float = 0.0
    answer: Future = field(default_factory=Future)

    def report(self, share: float) -> None:
        self.share = share


class Tasks:
    """One thread, in order: two at once would only make each other slow."""

    def __init__(self):
        self.worker = Worker(rows=1, wait=0, waiting=64)
        self.known: dict[str, Task] = {}

    def ask(self, name: str, doing: str, work: Callable[[Report], Any]) -> Task:
        """The task of this name; begun if nobody has asked for it before. A failed one is told once, then it may be begun again."""
        task = self.known.get(name)
        if task is None:
            task = self.known[name] = Task(doing)
            task.answer = self.worker.submit(_run, (work, task), 1)
        elif task.answer.done() and task.answer.exception():
            del self.known[name]
        return task


def _run(payloads: list[tuple[Callable[[Report], Any], Task]]) -> list[Any]:
    return [work(task.report) for work, task in payloads]


def answered(task: Task, make: Callable[[Any], Response]) -> Response:
    """The answer, or 202 and how far it is."""
    if not task.answer.done():
        return JSONResponse({"doing": task.doing, "share": task.share}, 202)
    problem = task.answer.exception()
    if isinstance(problem, NearfarError):  # its message may name files of this machine
        raise Refused(422, f"{task.doing}: not possible with these data; the server's log says why") from problem
    if problem is not None:
        raise problem
    return make(task.answer.result())
