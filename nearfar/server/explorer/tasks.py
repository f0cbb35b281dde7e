"""Background tasks with progress.

Each task runs once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import JSONResponse, Response

from nearfar.core import NearfarError
from nearfar.server.limits import RequestError
from nearfar.server.worker import Worker

ReportProgress = Callable[[float], None]


@dataclass
class Task:
    """Task with its progress."""

    description: str
    progress: float = 0.0
    future: Future = field(default_factory=Future)

    def set_progress(self, progress: float) -> None:
        """Set the finished share of the task."""
        self.progress = progress


class TaskQueue:
    """Queue of tasks in one thread.

    Two tasks at once would only slow each other down.
    """

    def __init__(self):
        self.worker = Worker(max_batch_rows=1, wait_seconds=0, max_queued_jobs=64)
        self.tasks: dict[str, Task] = {}

    def get_or_start(self, name: str, description: str, work: Callable[[ReportProgress], Any]) -> Task:
        """Return the task of this name.

        Start it if it does not exist. A failed task is returned once with its error. The next request starts
        it again.
        """
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = Task(description)
            task.future = self.worker.submit(_run, (work, task), 1)
        elif task.future.done() and task.future.exception():
            del self.tasks[name]
        return task


def _run(payloads: list[tuple[Callable[[ReportProgress], Any], Task]]) -> list[Any]:
    return [work(task.set_progress) for work, task in payloads]


def build_task_response(task: Task, build_response: Callable[[Any], Response]) -> Response:
    """Return the result, or status 202 and the progress of a running task."""
    if not task.future.done():
        return JSONResponse({"doing": task.description, "share": task.progress}, 202)
    problem = task.future.exception()
    if isinstance(problem, NearfarError):  # its message may name files of this machine
        raise RequestError(422, f"{task.description}: not possible with these data; the server's log says why") from problem
    if problem is not None:
        raise problem
    return build_response(task.future.result())
