"""What every method promises, asked of one: `nearfar check`, for methods of one's own.

A promise is kept or broken on a few small runs of the method, on a CPU, with its tiny settings or on data that are given. Whoever keeps
them all can be stopped and resumed, repeated, chunked and loaded like the methods that come with nearfar; which part of a broken
recipe is at fault, and what mends it, stands beside the promise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar import recipes
from nearfar.api.fit import fit, resume
from nearfar.core import NearfarError, Recipe, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.train.loader import StepDataset
from nearfar.train.model import Model, load
from nearfar.train.session import TrainingSession
from nearfar.train.step import freeze_batch_norm_statistics
from nearfar.train.training_loop import Hook

CHECK_STEPS, CHECK_BATCH_SIZE, CHECK_CHUNK_SIZE = 6, 32, 7
WITHOUT_BATCH_STATISTICS = {"image": "convnet-gn", "image-text": "convnet-gn", "graphs": "gin-3x16-ln"}
"""For each kind of data an encoder that sees every row by itself."""
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Promise:
    """What was promised, whether it was kept (None: it could not be asked) and what was found."""

    name: str
    kept: bool | None
    found: str


@dataclass(frozen=True)
class CheckResult:
    """All promises of a method."""

    method: str
    promises: list[Promise]

    @property
    def broken(self) -> list[Promise]:
        return [p for p in self.promises if p.kept is False]

    def rows(self) -> list[list[str]]:
        return [[{True: "kept", False: "BROKEN", None: "not asked"}[p.kept], p.name, p.found] for p in self.promises]

    def to_json(self) -> str:
        return json.dumps({"method": self.method, "promises": [dataclasses.asdict(p) for p in self.promises]}, indent=2)


def check(
    recipe: str | Recipe | type[Recipe], data: Any = None, *, progress: ProgressCallback | None = None, **settings: Any
) -> CheckResult:
    """Ask a method for its promises.

    recipe     a file, a class or an instance of your own, or a name
    data       what `nearfar.fit` takes. Default: that of the `tiny` settings in the method's file
    settings   any field of the recipe, of `TrainConfig` or of `RuntimeConfig`, for all runs that are made
    """
    asked = CheckedRecipe.from_arguments(recipe, data, settings)
    whole, promises = asked.fit(), []
    for i, (name, ask) in enumerate(PROMISES.items(), 1):
        unclear = ask in COMPARED_CHECKS and any(p.kept is False and p.name == SEED_REMEDY for p in promises)
        found = (None, f"only runs that repeat can be compared: first mend “{SEED_REMEDY}”") if unclear else ask(asked, whole)
        promises.append(Promise(name, *found))
        if progress:
            progress(i, len(PROMISES))
    return CheckResult(asked.name, promises)


class StepWatch(Hook):
    """Looks at the first step of a run: does asking twice give the same, and leave everything as it was?"""

    found: tuple[bool, str] = (False, "")

    def start(self, session: TrainingSession) -> None:
        session.net.train()
        before = {name: value.clone() for name, value in session.net.state_dict().items()}
        with freeze_batch_norm_statistics(session.net):
            first, second = _one_batch(session), _one_batch(session)
        written, moved = _different(before, session.net.state_dict()), _different(first, second)
        if written:
            self.found = False, f"they wrote {_names(written)}: what a method remembers is written in `update` or `refresh`"
        elif moved:
            self.found = False, f"the same batch gave another {_names(moved)}: draw by `rng_key`, not by a generator that goes on"
        else:
            self.found = True, "the same batch twice gave the same, and nothing in `net` was written"


@dataclass(frozen=True)
class CheckedRecipe:
    """How the runs of a check are made."""

    recipe: str | Recipe | type[Recipe]
    data: Any
    settings: dict[str, Any]
    name: str

    @classmethod
    def from_arguments(cls, recipe: str | Recipe | type[Recipe], data: Any, settings: dict[str, Any]) -> CheckedRecipe:
        method = recipes.load_method(recipe) if isinstance(recipe, str) else recipes.find_method(recipe)
        if not method.recipe_class.trains:
            raise UsageError(f"{method.name} is fitted in closed form: it has no steps that could be checked")
        tiny = {} if isinstance(recipe, Recipe) or not method.tiny[1].data else {"preset": "tiny"}
        if data is None and not method.tiny[1].data:
            raise UsageError(f"{method.name} names no data in its `tiny` settings: --data DATA")
        rows = CHECK_BATCH_SIZE if method.recipe_class.rowwise else min(CHECK_BATCH_SIZE, method.tiny[1].batch_size or CHECK_BATCH_SIZE)
        common = {"steps": CHECK_STEPS, "batch_size": rows, "device": "cpu", "log_every": 1}
        source = data if data is not None else method.tiny[1].data
        return cls(recipe, source, tiny | common | settings, method.name)

    def fit(self, **changes: Any) -> Model:
        return fit(self.recipe, self.data, **(self.settings | changes))

    @property
    def get_trusted_recipe(self) -> Any:
        """What names the recipe when its run is opened again."""
        own = isinstance(self.recipe, str) and recipes.is_user_recipe(self.recipe)
        return self.recipe if own or isinstance(self.recipe, type) else type(self.recipe) if isinstance(self.recipe, Recipe) else None


class _Stop(Hook):
    """Ends a run as a crash would."""

    def step(self, session: TrainingSession, values: Any, z: Any) -> None:
        if session.step == session.steps - 1:
            raise _Stopped


class _Stopped(Exception):
    pass


def check_encoding(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    watch = StepWatch()
    checked.fit(hooks=[watch], steps=1)
    return watch.found


def check_repeatable(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    differ = _different(whole.net.state_dict(), checked.fit().net.state_dict())
    if differ:
        return False, f"{_names(differ)} came out otherwise: a random number has no key (numpy's or Python's generator?)"
    if not _different(whole.net.state_dict(), checked.fit(seed=checked.settings.get("seed", 0) + 1).net.state_dict()):
        return False, "another seed gave the same run: nothing in it depends on the seed"
    return True, "the same seed twice: equal to the bit; another seed: another run"


def check_resume(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(_Stopped):
            checked.fit(out=Path(folder, "run"), save_every=2, hooks=[_Stop()])
        again = resume(Path(folder, "run"), None if isinstance(checked.data, str) else checked.data, recipe=checked.get_trusted_recipe)
    differ = _different(whole.net.state_dict(), again.net.state_dict())
    if differ:
        return False, f"{_names(differ)} came out otherwise: there is state outside `net`, or a random number without a key"
    return True, f"stopped before step {CHECK_STEPS} and resumed: equal to the bit"


def check_load(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        saved = checked.fit(out=Path(folder, "run"))
        loaded = load(Path(folder, "run"), "cpu", checked.get_trusted_recipe)
    differ = _different(saved.net.state_dict(), loaded.net.state_dict())
    if differ:
        return False, f"{_names(differ)} came back otherwise: `build` must make all parts that `net` has, whatever it is trained on"
    return True, "a saved run is loaded as it was"


def check_gradients(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    model = checked.fit(weight_decay=0.0)
    before = dict(model.build_untrained().net.named_parameters())
    still = [name for name, p in model.net.named_parameters() if p.requires_grad and torch.equal(p, before[name])]
    if still:
        return False, f"{_names(still)} never moved: no gradient reaches it; if that is meant, requires_grad_(False)"
    return True, "all parameters that are to be trained moved"


def check_chunks(checked: CheckedRecipe, whole: Model) -> tuple[bool | None, str]:
    if not whole.recipe.rowwise:
        return None, "it embeds all rows at once (rowwise = False)"
    own = {f.name for f in dataclasses.fields(whole.recipe)}
    rowwise = {name: value for name, value in {"norm": "layer", "dropout": 0.0}.items() if name in own}
    encoder = WITHOUT_BATCH_STATISTICS.get(whole.recipe.card.modality, whole.config.encoder)
    exact = rowwise | {"steps": 2, "optimizer": "sgd", "lr": 0.05, "encoder": encoder, "schedule": "constant", "warmup_ratio": 0.0}
    one = checked.fit(**exact)
    if mixing := sorted({type(m).__name__ for m in one.net.modules() if _mixes_rows(m)}):
        return None, f"{', '.join(mixing)} in the net sees rows together, or draws by place: chunks differ by nature"
    some, start = checked.fit(chunk_size=CHECK_CHUNK_SIZE, **exact), one.build_untrained().net.state_dict()
    wrong = _largest(one.net.state_dict(), some.net.state_dict()) / max(_largest(one.net.state_dict(), start), 1e-12)
    if wrong > 1e-3:
        return (
            False,
            f"chunks of {CHECK_CHUNK_SIZE} changed the step by {wrong:.1%}: `embed` mixes rows (that is for `objective`), or draws by place",
        )
    return True, f"chunks of {CHECK_CHUNK_SIZE} rows take the step of the whole batch"


SEED_REMEDY = "a seed is a run"
PROMISES: dict[str, Callable[[CheckedRecipe, Model], tuple[bool | None, str]]] = {
    "embed and objective only look": check_encoding,
    SEED_REMEDY: check_repeatable,
    "resuming is exact": check_resume,
    "saving is enough": check_load,
    "gradients reach every parameter": check_gradients,
    "chunks are the whole batch": check_chunks,
}
COMPARED_CHECKS = (check_resume, check_chunks)
"""What is told by comparing two runs of one seed."""


def _one_batch(session: TrainingSession) -> Tensors:
    """One batch through views, embed and objective."""
    similarity = session.similarity()
    steps = StepDataset(session.data, similarity, session.plan, session.rng_key("read"), None)
    (rows,), raws = steps.get_row_chunks(0), steps[0]
    if isinstance(raws, NearfarError):
        raise raws
    (raw,) = raws
    session.rng_key("dropout", 0, 0, 0).seed_torch()
    with torch.no_grad():
        x = similarity.view(raw, rows, session.rng_key("view"))
        x |= {"id": torch.as_tensor(rows.ids), "slot": torch.as_tensor(rows.slots)}
        z = session.recipe.embed(session.net, x, session.rng_key("embed", 0))
        loss = session.recipe.objective(session.net, z, session.rng_key("objective", 0))
    return dict(z) | (loss if isinstance(loss, dict) else {"loss": loss})


def _different(a: Tensors, b: Tensors) -> list[str]:
    return [name for name in a if name not in b or not torch.equal(a[name], b[name])]


def _largest(a: Tensors, b: Tensors) -> float:
    return max((float((a[n].double() - b[n].double()).abs().max()) for n in a if a[n].is_floating_point() and a[n].numel()), default=0.0)


def _mixes_rows(module: nn.Module) -> bool:
    dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    return dropout or isinstance(module, nn.modules.batchnorm._BatchNorm)


def _names(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
