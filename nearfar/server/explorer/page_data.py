"""Data of the explorer page, computed in the background at the first request."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Request

from nearfar.api.load import load
from nearfar.server.collection import Collection, RunCollection
from nearfar.server.explorer import maps
from nearfar.server.explorer.columns import DEFAULT_CLUSTERS, compute_clusters, compute_density, list_known_columns
from nearfar.server.explorer.runs import align_map, compute_neighbor_changes, find_runs, measure_run
from nearfar.server.explorer.tasks import ReportProgress, TaskQueue
from nearfar.server.limits import RequestError
from nearfar.server.service import Service


class Explorer:
    """Data of the page about a collection, computed at the first request."""

    def __init__(self, service: Service, runs_folder: Path | None, map_method: str):
        self.service, self.collection, self.runs_folder = service, service.collection, runs_folder
        self.map_method = maps.resolve_map_method(map_method)
        self.tasks, self.map_process = TaskQueue(), maps.MapProcess()
        self.columns = {column.name: column for column in list_known_columns(self.collection)}
        self.others: dict[str, Collection] = {}

    @property
    def run_name(self) -> str | None:
        """Name of the run, or None for an index without a run."""
        model = self.collection.model
        return model.run_folder.path.name if model and model.run_folder else None

    def list_runs(self) -> dict[str, Path]:
        """Return the runs that can be compared, by name."""
        return find_runs(self.runs_folder)

    def describe(self) -> dict[str, Any]:
        """Return the description of the collection for the page."""
        model, collection = self.collection.model, self.collection
        return {
            "title": collection.title,
            "rows": len(collection),
            "dim": collection.dim,
            "modality": collection.modality,
            "media": asdict(collection.media),
            "takes": model.modality.input_types if model else (),
            "run": self.run_name,
            "step": model.step if model else None,
            "claim": model.recipe.card.loss if model else None,
            "maps": [self.map_method, *(m for m in maps.list_map_methods() if m != self.map_method)],
            "columns": [column.as_dict() for column in self.columns.values()],
            "clusters": min(DEFAULT_CLUSTERS, len(collection)),
            "runs": list(self.list_runs()) if isinstance(collection, RunCollection) else [],
            "views": isinstance(collection, RunCollection) and collection.is_own_data,
        }

    def compute_cached_map(self, collection: Collection, method: str, report_progress: ReportProgress) -> np.ndarray:
        """Return a map of a collection from the cache, or compute it."""

        def drawn() -> np.ndarray:
            return self.map_process(collection.get_vectors(collection.rows), method, 0, report_progress)

        return collection.cache.get_or_compute(f"map-{method}", drawn)

    def request_map(self, method: str) -> Any:
        """Return the task that computes a map."""
        return self.tasks.get_or_start(
            f"map {method}", f"drawing the map ({method})", lambda report: self.compute_cached_map(self.collection, method, report)
        )

    def request_column(self, name: str, k: int) -> Any:
        """Return the task that computes a column.

        Some columns take a while.
        """
        if not len(self.collection):
            raise RequestError(422, "there are no rows")
        if name == "cluster":
            return self.tasks.get_or_start(f"cluster {k}", f"finding {k} clusters", lambda report: compute_clusters(self.collection, k))
        if name == "crowding":
            return self.tasks.get_or_start(
                name, "measuring the density around each sample", lambda report: compute_density(self.collection, report)
            )
        if name not in self.columns:
            raise RequestError(404, "there is no such column")
        return self.tasks.get_or_start(f"column {name}", name, lambda report: self.columns[name])

    def request_comparison(self, name: str) -> Any:
        """Return the task that compares another run on the same data.

        The result is the other run's map, aligned with this run's map, and the change of each point's
        neighbors.
        """
        path = self.list_runs().get(name)
        if path is None or not isinstance(self.collection, RunCollection):
            raise RequestError(404, "there is no such run")

        def work(report: ReportProgress) -> tuple[np.ndarray, np.ndarray]:
            own = self.collection
            assert isinstance(own, RunCollection)
            assert own.model is not None
            model = load(path, own.model.device.type)
            other = RunCollection(model, own.model.config.data, lambda done, total: report(0.3 * done / total))
            if len(other) != len(own):
                raise RequestError(422, "the two runs do not read the same samples")
            changes = compute_neighbor_changes(own, other, lambda share: report(0.3 + 0.2 * share))
            there = self.compute_cached_map(other, self.map_method, lambda share: report(0.5 + 0.5 * share))
            return align_map(there, self.compute_cached_map(own, self.map_method, lambda share: None)), changes

        return self.tasks.get_or_start(f"compare {name}", f"comparing with {name}", work)

    def request_run_geometry(self) -> Any:
        """Return the task that measures all runs of the folder."""

        def work(report: ReportProgress) -> list[dict[str, Any]]:
            found, runs = [], self.list_runs()
            for path in runs.values():
                found.append(measure_run(path, self.collection.model.device.type if self.collection.model else "cpu"))
                report(len(found) / len(runs))
            return found

        return self.tasks.get_or_start("plane", "measuring the runs of the folder", work)

    def stop(self) -> None:
        """Stop the computation of maps."""
        self.map_process.stop()


async def get_explorer(request: Request) -> Explorer:
    """Return the explorer of the application."""
    return request.app.state.explorer


ExplorerDependency = Annotated[Explorer, Depends(get_explorer)]
