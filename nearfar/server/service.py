"""What the paths share: the collection, the encoder, and the one thread that computes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import numpy as np
from anyio import to_thread

from nearfar.core import NearfarError
from nearfar.server.collection import Collection
from nearfar.server.encoder import Encoder
from nearfar.server.limits import Limits, Refused
from nearfar.server.metrics import Metrics
from nearfar.server.neighbors import Found, Query
from nearfar.server.requests import Asked
from nearfar.server.sample_inputs import prepare
from nearfar.server.worker import Worker

GATHERED = 256
"""Rows that close a batch of the worker."""


class Service:
    """From requests to results."""

    def __init__(self, collection: Collection, limits: Limits | None = None):
        self.collection = collection
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.encoder = self.asking = Encoder(collection.trained) if collection.trained else None
        if collection.trained and hasattr(collection.trained.net, "question"):  # a run that tells questions from passages (DPR)
            self.asking = Encoder(collection.trained, "question")
        self.worker = Worker(GATHERED, waiting=self.limits.waiting, observe=self.metrics.batch)

    async def embed(self, asked: Asked) -> np.ndarray:
        """(n, d) vectors of what was asked."""
        return await self._in_time(self._embed(asked, self.encoder))

    async def search(self, asked: Asked) -> Found:
        """(q, k) rows and scores; a row that is itself the query is among its neighbours."""
        return await self._in_time(self._search(asked))

    async def _embed(self, asked: Asked, encoder: Encoder | None) -> np.ndarray:
        if asked.vectors is not None:
            return asked.vectors
        if asked.kind == "rows":
            return await _in_thread(self.collection.vectors, self._rows(asked.samples))
        samples = await _in_thread(prepare, self.collection.trained, asked.kind, asked.samples, self.limits)
        assert encoder is not None
        return await self._answered(encoder, samples, len(samples))

    async def _search(self, asked: Asked) -> Found:
        if asked.k > len(self.collection):
            raise Refused(422, f"k: there are {len(self.collection):,} rows")
        query = Query(np.ascontiguousarray(await self._embed(asked, self.asking)), asked.k)
        return await self._answered(self.collection.search, query, len(query.vectors))

    def _rows(self, asked: list[int]) -> np.ndarray:
        known = self.collection.rows
        for row in asked:
            if not (len(known) and known[0] <= row <= known[-1] and known[np.searchsorted(known, row)] == row):
                raise Refused(404, f"rows: there is no row {row}")
        return np.array(asked, dtype=np.int64)

    def row(self, number: int) -> int:
        """A row's number, if there is such a row."""
        return int(self._rows([number])[0])

    async def _answered(self, work: Any, payload: Any, rows: int) -> Any:
        answer: Future = self.worker.submit(work, payload, rows)
        try:
            return await asyncio.wrap_future(answer)
        except NearfarError as e:  # such as a query of zeros, which has no cosine; paths of this machine are nobody's business
            raise Refused(422, "this cannot be computed" if os.sep in str(e) else str(e)) from e

    async def _in_time(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            raise Refused(504, f"this took longer than {self.limits.seconds:g} seconds: ask for less at once") from None


async def _in_thread(work: Callable[..., Any], *args: Any) -> Any:
    """A thread cannot be stopped: one that takes too long is left to itself, and whoever asked need not wait for it."""
    return await to_thread.run_sync(work, *args, abandon_on_cancel=True)
