"""Paths of the explorer page.

Arrays are sent as raw little-endian numbers, everything else as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import FileResponse, JSONResponse, Response

from nearfar.reports.style import STYLE_SHEET
from nearfar.server.collection import Collection, RunCollection
from nearfar.server.explorer import maps
from nearfar.server.explorer import training_diagnostics as health
from nearfar.server.explorer.columns import DEFAULT_CLUSTERS, ColorColumn, compute_clusters, compute_density, list_known_columns
from nearfar.server.explorer.runs import align_map, compute_neighbor_changes, find_runs, measure_run
from nearfar.server.explorer.tasks import ReportProgress, TaskQueue, build_task_response
from nearfar.server.limits import RequestError
from nearfar.server.requests import ParsedRequest
from nearfar.server.sample_inputs import ACCEPTED_INPUT_TYPES
from nearfar.server.service import Service
from nearfar.train.model import load

EXPLORER_FOLDER = Path(__file__).parent
CACHE_HEADERS = {"Cache-Control": "max-age=3600"}
MISSING_RESPONSES: dict[int | str, dict[str, Any]] = {
    404: {"description": "no such row, column or run"},
    422: {"description": "not possible with these data"},
}
PENDING_RESPONSES: dict[int | str, dict[str, Any]] = {202: {"description": "not ready: what is being done, and the share that is done"}}


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
            "takes": ACCEPTED_INPUT_TYPES.get(collection.modality, ()),
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


def add_explorer(app: FastAPI, service: Service, runs_folder: Path | None, map_method: str) -> Callable[[], None]:
    """Add the page and its paths.

    Return the function that stops the background work.
    """
    explorer = Explorer(service, runs_folder, map_method)
    router = APIRouter(prefix="/explorer", tags=["explore"])
    _add_points(router, explorer)
    _add_samples(router, explorer)
    _add_runs(router, explorer)
    app.include_router(router)
    _add_files(app)
    return explorer.stop


def _build_array_response(values: np.ndarray) -> Response:
    return Response(np.ascontiguousarray(values).tobytes(), media_type="application/octet-stream")


def _add_points(router: APIRouter, explorer: Explorer) -> None:
    @router.get("/about")
    def about() -> dict[str, Any]:
        return explorer.describe()

    @router.get("/rows")
    def rows() -> Response:
        """Return the row number of each point, uint32."""
        return _build_array_response(explorer.collection.rows.astype("<u4"))

    @router.get("/map", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def map(method: str = "auto") -> Response:
        """Return the map, two float32 numbers per point."""
        if method not in ("auto", *maps.list_map_methods()):
            raise RequestError(404, "there is no such map")
        return build_task_response(
            explorer.request_map(explorer.map_method if method == "auto" else method),
            lambda points: _build_array_response(points.astype("<f4")),
        )

    @router.get("/column", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def column(name: str, k: Annotated[int, Query(ge=2, le=100)] = DEFAULT_CLUSTERS) -> Response:
        """Return one uint32 code or float32 number per point.

        The header X-Column describes a computed column.
        """
        k = min(k, len(explorer.collection))
        return build_task_response(explorer.request_column(name, k), _build_column_response)


def _build_column_response(column: ColorColumn) -> Response:
    answer = _build_array_response(column.data)
    if not column.classes:
        answer.headers["X-Column"] = f"{float(column.data.min())},{float(column.data.max())}"
    return answer


def _add_samples(router: APIRouter, explorer: Explorer) -> None:
    service, collection = explorer.service, explorer.collection

    @router.get("/sample/{row}", responses=MISSING_RESPONSES)
    def item(row: int) -> dict[str, Any]:
        return collection.describe_rows([service.check_row(row)])[0]

    @router.get("/picture/{row}", responses=MISSING_RESPONSES)
    def picture(row: int) -> Response:
        return _build_file_response(collection.get_png(service.check_row(row)), "image/png")

    @router.get("/sound/{row}", responses=MISSING_RESPONSES)
    def sound(row: int) -> Response:
        return _build_file_response(collection.get_wav(service.check_row(row)), "audio/wav")

    @router.get("/neighbors/{row}", responses=MISSING_RESPONSES)
    async def neighbors(row: int, k: Annotated[int, Query(ge=1, le=100)] = 12) -> dict[str, Any]:
        """Return a sample and its nearest neighbors with scores."""
        own = service.check_row(row)
        found = await service.search(ParsedRequest("rows", [own], k=min(k + 1, len(collection))))
        pairs = zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True)
        others = [(r, s) for r, s in pairs if r != own][:k]
        items = collection.describe_rows([own, *(r for r, _ in others)])
        return {"sample": items[0], "neighbors": [i | {"score": s} for i, (_, s) in zip(items[1:], others, strict=True)]}


def _build_file_response(data: bytes | None, media_type: str) -> Response:
    if data is None:
        raise RequestError(404, "there is nothing of this kind for the row")
    return Response(data, media_type=media_type, headers=CACHE_HEADERS)


def _add_runs(router: APIRouter, explorer: Explorer) -> None:
    collection = explorer.collection

    def of_own_data(name: str, doing: str, work: Callable[[Any], Any]) -> Response:
        model = collection.model
        if model is None or not isinstance(collection, RunCollection) or not collection.is_own_data:
            return JSONResponse([])
        return build_task_response(explorer.tasks.get_or_start(name, doing, lambda report: work(model)), JSONResponse)

    @router.get("/curves")
    def curves() -> dict[str, list[list[float]]]:
        return health.read_curves(collection.model)

    @router.get("/health", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def vectors_health() -> Response:
        return build_task_response(
            explorer.tasks.get_or_start("health", "measuring the spectrum", lambda report: health.compute_diagnostics(collection)),
            JSONResponse,
        )

    @router.get("/views", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def views() -> Response:
        """Return positive pairs of the training."""
        return of_own_data("views", "drawing views", health.render_training_views)

    @router.get("/findings", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def findings() -> Response:
        """Return the findings of `nearfar diagnose`."""
        return of_own_data("findings", "looking for problems", health.list_findings)

    @router.get("/plane", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def plane() -> Response:
        return build_task_response(explorer.request_run_geometry(), JSONResponse)

    @router.get("/compare/map", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def compare_map(run: str) -> Response:
        """Return the other run's map, two float32 numbers per point."""
        return build_task_response(explorer.request_comparison(run), lambda found: _build_array_response(found[0].astype("<f4")))

    @router.get("/compare/moved", responses=MISSING_RESPONSES | PENDING_RESPONSES)
    def compare_moved(run: str) -> Response:
        """Return the share of ten neighbors that each point lost, float32.

        The share is NaN for points that were not measured.
        """
        return build_task_response(explorer.request_comparison(run), lambda found: _build_array_response(found[1]))


def _add_files(app: FastAPI) -> None:
    """Add the page and its scripts by name.

    Other files of the package are not served.
    """
    names = sorted(path.name for path in EXPLORER_FOLDER.iterdir() if path.suffix in (".js", ".css"))

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(EXPLORER_FOLDER / "index.html")

    @app.get("/static/explorer/{name}", include_in_schema=False)
    def script(name: str) -> FileResponse:
        if name not in names:
            raise RequestError(404, "Not Found")
        return FileResponse(EXPLORER_FOLDER / name)

    @app.get("/static/style.css", include_in_schema=False)
    def style() -> Response:
        return Response(STYLE_SHEET, media_type="text/css")

    @app.get("/static/plotly.js", include_in_schema=False)
    def plotly() -> FileResponse:
        """Return plotly.js from the installed Python package.

        No other server is needed.
        """
        spec = find_spec("plotly")
        assert spec is not None
        assert spec.origin is not None
        return FileResponse(Path(spec.origin).parent / "package_data" / "plotly.min.js", headers=CACHE_HEADERS)
