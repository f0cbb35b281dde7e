"""The paths behind the page. Tables of numbers travel as bare little-endian arrays, everything else as JSON."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import FileResponse, JSONResponse, Response

from nearfar.reports.style import STYLE
from nearfar.server.collection import Collection, RunCollection
from nearfar.server.explorer import health, maps
from nearfar.server.explorer.columns import CLUSTERS, Column, clusters, crowding, known_columns
from nearfar.server.explorer.runs import moved, place, runs_in, turned
from nearfar.server.explorer.tasks import Report, Tasks, answered
from nearfar.server.limits import Refused
from nearfar.server.requests import Asked
from nearfar.server.sample_inputs import TAKES
from nearfar.server.service import Service
from nearfar.train.model import load

HERE = Path(__file__).parent
KEPT = {"Cache-Control": "max-age=3600"}
FOUND: dict[int | str, dict[str, Any]] = {
    404: {"description": "no such row, column or run"},
    422: {"description": "not possible with these data"},
}
LATER: dict[int | str, dict[str, Any]] = {202: {"description": "not ready: what is being done, and the share that is done"}}


class Explorer:
    """What the page shows of a collection, computed when it is first asked for."""

    def __init__(self, service: Service, runs: Path | None, method: str):
        self.service, self.collection, self.folder = service, service.collection, runs
        self.method = maps.check(method)
        self.tasks, self.drawing = Tasks(), maps.Drawing()
        self.columns = {column.name: column for column in known_columns(self.collection)}
        self.others: dict[str, Collection] = {}

    @property
    def own(self) -> str | None:
        trained = self.collection.trained
        return trained.folder.path.name if trained and trained.folder else None

    def runs(self) -> dict[str, Path]:
        return runs_in(self.folder)

    def about(self) -> dict[str, Any]:
        trained, collection = self.collection.trained, self.collection
        return {
            "title": collection.title,
            "rows": len(collection),
            "dim": collection.dim,
            "modality": collection.modality,
            "takes": TAKES.get(collection.modality, ()),
            "run": self.own,
            "step": trained.step if trained else None,
            "claim": trained.recipe.card.loss if trained else None,
            "maps": [self.method, *(m for m in maps.methods() if m != self.method)],
            "columns": [column.described() for column in self.columns.values()],
            "clusters": min(CLUSTERS, len(collection)),
            "runs": list(self.runs()) if isinstance(collection, RunCollection) else [],
            "views": isinstance(collection, RunCollection) and collection.own,
        }

    def draw(self, collection: Collection, method: str, report: Report) -> np.ndarray:
        def drawn() -> np.ndarray:
            return self.drawing(collection.vectors(collection.rows), method, 0, report)

        return collection.cache.of(f"map-{method}", drawn)

    def map(self, method: str) -> Any:
        return self.tasks.ask(f"map {method}", f"drawing the map ({method})", lambda report: self.draw(self.collection, method, report))

    def column(self, name: str, k: int) -> Any:
        """A task: some columns take a while."""
        if not len(self.collection):
            raise Refused(422, "there are no rows")
        if name == "cluster":
            return self.tasks.ask(f"cluster {k}", f"finding {k} clusters", lambda report: clusters(self.collection, k))
        if name == "crowding":
            return self.tasks.ask(name, "measuring how crowded each place is", lambda report: crowding(self.collection, report))
        if name not in self.columns:
            raise Refused(404, "there is no such column")
        return self.tasks.ask(f"column {name}", name, lambda report: self.columns[name])

    def compared(self, name: str) -> Any:
        """Another run on the same data: its map, turned to lie on this one's, and who moved."""
        path = self.runs().get(name)
        if path is None or not isinstance(self.collection, RunCollection):
            raise Refused(404, "there is no such run")

        def work(report: Report) -> tuple[np.ndarray, np.ndarray]:
            own = self.collection
            assert isinstance(own, RunCollection)
            assert own.trained is not None
            trained = load(path, own.trained.device.type)
            other = RunCollection(trained, own.trained.run.data, lambda done, total: report(0.3 * done / total))
            if len(other) != len(own):
                raise Refused(422, "the two runs do not read the same samples")
            changes = moved(own, other, lambda share: report(0.3 + 0.2 * share))
            there = self.draw(other, self.method, lambda share: report(0.5 + 0.5 * share))
            return turned(there, self.draw(own, self.method, lambda share: None)), changes

        return self.tasks.ask(f"compare {name}", f"comparing with {name}", work)

    def plane(self) -> Any:
        def work(report: Report) -> list[dict[str, Any]]:
            found, runs = [], self.runs()
            for path in runs.values():
                found.append(place(path, self.collection.trained.device.type if self.collection.trained else "cpu"))
                report(len(found) / len(runs))
            return found

        return self.tasks.ask("plane", "measuring the runs of the folder", work)

    def stop(self) -> None:
        self.drawing.stop()


def add_explorer(app: FastAPI, service: Service, runs: Path | None, method: str) -> Callable[[], None]:
    """Adds the page and its paths; returns what ends its background work."""
    explorer = Explorer(service, runs, method)
    router = APIRouter(prefix="/explorer", tags=["explore"])
    _add_points(router, explorer)
    _add_samples(router, explorer)
    _add_runs(router, explorer)
    app.include_router(router)
    _add_files(app)
    return explorer.stop


def _array(values: np.ndarray) -> Response:
    return Response(np.ascontiguousarray(values).tobytes(), media_type="application/octet-stream")


def _add_points(router: APIRouter, explorer: Explorer) -> None:
    @router.get("/about")
    def about() -> dict[str, Any]:
        return explorer.about()

    @router.get("/rows")
    def rows() -> Response:
        """uint32: the number of each point's row."""
        return _array(explorer.collection.rows.astype("<u4"))

    @router.get("/map", responses=FOUND | LATER)
    def map(method: str = "auto") -> Response:
        """float32, two a point."""
        if method not in ("auto", *maps.methods()):
            raise Refused(404, "there is no such map")
        return answered(explorer.map(explorer.method if method == "auto" else method), lambda points: _array(points.astype("<f4")))

    @router.get("/column", responses=FOUND | LATER)
    def column(name: str, k: Annotated[int, Query(ge=2, le=100)] = CLUSTERS) -> Response:
        """uint32 codes or float32 numbers, one a point. A column that is computed is described in the header X-Column."""
        k = min(k, len(explorer.collection))
        return answered(explorer.column(name, k), _column)


def _column(column: Column) -> Response:
    answer = _array(column.data)
    if not column.values:
        answer.headers["X-Column"] = f"{float(column.data.min())},{float(column.data.max())}"
    return answer


def _add_samples(router: APIRouter, explorer: Explorer) -> None:
    service, collection = explorer.service, explorer.collection

    @router.get("/item/{row}", responses=FOUND)
    def item(row: int) -> dict[str, Any]:
        return collection.items([service.row(row)])[0]

    @router.get("/picture/{row}", responses=FOUND)
    def picture(row: int) -> Response:
        return _file(collection.picture(service.row(row)), "image/png")

    @router.get("/sound/{row}", responses=FOUND)
    def sound(row: int) -> Response:
        return _file(collection.sound(service.row(row)), "audio/wav")

    @router.get("/neighbours/{row}", responses=FOUND)
    async def neighbours(row: int, k: Annotated[int, Query(ge=1, le=100)] = 12) -> dict[str, Any]:
        """The item itself and its nearest others, with scores."""
        own = service.row(row)
        found = await service.search(Asked("rows", [own], k=min(k + 1, len(collection))))
        pairs = zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True)
        others = [(r, s) for r, s in pairs if r != own][:k]
        items = collection.items([own, *(r for r, _ in others)])
        return {"item": items[0], "neighbours": [i | {"score": s} for i, (_, s) in zip(items[1:], others, strict=True)]}


def _file(data: bytes | None, kind: str) -> Response:
    if data is None:
        raise Refused(404, "there is nothing of this kind for the row")
    return Response(data, media_type=kind, headers=KEPT)


def _add_runs(router: APIRouter, explorer: Explorer) -> None:
    collection = explorer.collection

    def of_own_data(name: str, doing: str, work: Callable[[Any], Any]) -> Response:
        trained = collection.trained
        if trained is None or not isinstance(collection, RunCollection) or not collection.own:
            return JSONResponse([])
        return answered(explorer.tasks.ask(name, doing, lambda report: work(trained)), JSONResponse)

    @router.get("/curves")
    def curves() -> dict[str, list[list[float]]]:
        return health.curves(collection.trained)

    @router.get("/health", responses=FOUND | LATER)
    def vectors_health() -> Response:
        return answered(explorer.tasks.ask("health", "measuring the spectrum", lambda report: health.diagnostics(collection)), JSONResponse)

    @router.get("/views", responses=FOUND | LATER)
    def views() -> Response:
        """Positive pairs of the training."""
        return of_own_data("views", "drawing views", health.views)

    @router.get("/findings", responses=FOUND | LATER)
    def findings() -> Response:
        """What `nearfar diagnose` says."""
        return of_own_data("findings", "looking for what is wrong", health.findings)

    @router.get("/plane", responses=FOUND | LATER)
    def plane() -> Response:
        return answered(explorer.plane(), JSONResponse)

    @router.get("/compare/map", responses=FOUND | LATER)
    def compare_map(run: str) -> Response:
        """float32, two a point: the other run's map."""
        return answered(explorer.compared(run), lambda found: _array(found[0].astype("<f4")))

    @router.get("/compare/moved", responses=FOUND | LATER)
    def compare_moved(run: str) -> Response:
        """float32, one a point: the share of its ten neighbours that it lost; not a number where it was not measured."""
        return answered(explorer.compared(run), lambda found: _array(found[1]))


def _add_files(app: FastAPI) -> None:
    """The page and its scripts, by name: nothing else of the package can be asked for."""
    names = sorted(path.name for path in HERE.iterdir() if path.suffix in (".js", ".css"))

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(HERE / "index.html")

    @app.get("/static/explorer/{name}", include_in_schema=False)
    def script(name: str) -> FileResponse:
        if name not in names:
            raise Refused(404, "Not Found")
        return FileResponse(HERE / name)

    @app.get("/static/style.css", include_in_schema=False)
    def style() -> Response:
        return Response(STYLE, media_type="text/css")

    @app.get("/static/plotly.js", include_in_schema=False)
    def plotly() -> FileResponse:
        """As the Python package brings it: no other server is asked."""
        spec = find_spec("plotly")
        assert spec is not None
        assert spec.origin is not None
        return FileResponse(Path(spec.origin).parent / "package_data" / "plotly.min.js", headers=KEPT)
