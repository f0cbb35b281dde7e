"""Shared state of the paths: the collection, the encoder and the worker thread."""

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
from nearfar.server.encoder import BatchEncoder
from nearfar.server.limits import Limits, RequestError
from nearfar.server.metrics import ServerMetrics
from nearfar.server.neighbors import SearchHits, SearchRequest
from nearfar.server.requests import ParsedRequest
from nearfar.server.sample_inputs import prepare_samples
from nearfar.server.worker import Worker

MAX_BATCH_ROWS = 256
"""Rows that close a batch of the worker."""


class Service:
    """Service that computes the results of requests."""

    def __init__(self, collection: Collection, limits: Limits | None = None):
        self.collection = collection
        self.limits = limits or Limits()
        self.encoder = self.query_encoder = BatchEncoder(collection.model) if collection.model else None
        # Models with separate towers for questions and passages, such as DPR.
        if collection.model and hasattr(collection.model.net, "question"):
            self.query_encoder = BatchEncoder(collection.model, "question")
        self.metrics = ServerMetrics(lambda: self.worker.jobs.qsize(), lambda: len(collection))
        self.worker = Worker(MAX_BATCH_ROWS, max_queued_jobs=self.limits.queued_requests, on_batch=self.metrics.record_batch)

    async def embed(self, request: ParsedRequest) -> np.ndarray:
        """Return the (n, d) vectors of a request."""
        return await self._run_with_timeout(self._embed(request, self.encoder))

    async def search(self, request: ParsedRequest) -> SearchHits:
        """Return (q, k) rows and scores.

        A query that is a row is among its own neighbors.
        """
        return await self._run_with_timeout(self._search(request))

    async def _embed(self, request: ParsedRequest, encoder: BatchEncoder | None) -> np.ndarray:
        if request.vectors is not None:
            return request.vectors
        if request.input_type == "rows":
            return await _run_in_thread(self.collection.get_vectors, self._check_rows(request.samples))
        samples = await _run_in_thread(prepare_samples, self.collection.model, request.input_type, request.samples, self.limits)
        assert encoder is not None
        return await self._run_on_worker(encoder, samples, len(samples))

    async def _search(self, request: ParsedRequest) -> SearchHits:
        if request.k > len(self.collection):
            raise RequestError(422, f"k: there are {len(self.collection):,} rows")
        query = SearchRequest(np.ascontiguousarray(await self._embed(request, self.query_encoder)), request.k)
        return await self._run_on_worker(self.collection.search, query, len(query.vectors))

    def _check_rows(self, rows: list[int]) -> np.ndarray:
        known = self.collection.rows
        for row in rows:
            if not (len(known) and known[0] <= row <= known[-1] and known[np.searchsorted(known, row)] == row):
                raise RequestError(404, f"rows: there is no row {row}")
        return np.array(rows, dtype=np.int64)

    def check_row(self, number: int) -> int:
        """Return a row number.

        Raise if the row does not exist.
        """
        return int(self._check_rows([number])[0])

    async def _run_on_worker(self, work: Any, payload: Any, rows: int) -> Any:
        answer: Future = self.worker.submit(work, payload, rows)
        try:
            return await asyncio.wrap_future(answer)
        except NearfarError as e:  # such as a zero query, which has no cosine; hide paths of this machine
            raise RequestError(422, "this cannot be computed" if os.sep in str(e) else str(e)) from e

    async def _run_with_timeout(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await asyncio.wait_for(work, self.limits.timeout_seconds)
        except TimeoutError:
            raise RequestError(504, f"this took longer than {self.limits.timeout_seconds:g} seconds: ask for less at once") from None


async def _run_in_thread(work: Callable[..., Any], *args: Any) -> Any:
    """Run a function in a thread.

    A thread cannot be stopped. After a timeout it continues alone, and the request does not wait for it.
    """
    return await to_thread.run_sync(work, *args, abandon_on_cancel=True)
