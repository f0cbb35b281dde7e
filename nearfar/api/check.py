"""The `nearfar check` command: tests of the requirements that every method must meet.

The checks train a few small models with the method on a CPU. They use the method's tiny settings or the given
data. A method that passes all checks can be stopped and resumed, repeated, split into chunks and loaded, like
the methods that come with nearfar. A failed check reports the faulty part of the recipe and how to fix it.
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
from nearfar.api.load import load
from nearfar.core import NearfarError, Recipe, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.train.loader import StepDataset
from nearfar.train.model import Model
from nearfar.train.session import TrainingSession
from nearfar.train.step import freeze_batch_norm_statistics
from nearfar.train.training_loop import Hook

CHECK_STEPS, CHECK_BATCH_SIZE, CHECK_CHUNK_SIZE = 6, 32, 7
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Promise:
    """One requirement, its result and a description.

    `kept` is True if the requirement holds, False if it is broken, and None if the check could not run.
    """

    name: str
    kept: bool | None
    found: str


@dataclass(frozen=True)
class CheckResult:
    """Results of all checks of a method."""

    method: str
    promises: list[Promise]

    @property
    def broken(self) -> list[Promise]:
        """Return the requirements that the method breaks."""
        return [p for p in self.promises if p.kept is False]

    def rows(self) -> list[list[str]]:
        """Return one table row for each requirement: result, name, description."""
        return [[{True: "kept", False: "BROKEN", None: "not asked"}[p.kept], p.name, p.found] for p in self.promises]

    def to_json(self) -> str:
        """Return the results as JSON."""
        return json.dumps({"method": self.method, "promises": [dataclasses.asdict(p) for p in self.promises]}, indent=2)


def check(
    recipe: str | Recipe | type[Recipe], data: Any = None, *, progress: ProgressCallback | None = None, **settings: Any
) -> CheckResult:
    """Check that a method meets the requirements of every method.

    Args:
        recipe: a file, a class or an instance of a custom recipe, or a name.
        data: as in `nearfar.fit`. Default: the data of the `tiny` settings in the method's file.
        progress: called with the number of finished checks and the number of all checks.
        settings: any field of the recipe, of `TrainConfig` or of `RuntimeConfig`. They apply to all runs of
            the check.

    Raises:
        UsageError: if the method is fitted in closed form, or if it needs `data`.
    """
    asked = CheckedRecipe.from_arguments(recipe, data, settings)
    whole, promises = asked.fit(), []
    for i, (name, ask) in enumerate(PROMISES.items(), 1):
        unclear = ask in COMPARED_CHECKS and any(p.kept is False and p.name == SEED_REMEDY for p in promises)
        found = (None, f"runs can be compared only if they repeat: first fix “{SEED_REMEDY}”") if unclear else ask(asked, whole)
        promises.append(Promise(name, *found))
        if progress:
            progress(i, len(PROMISES))
    return CheckResult(asked.name, promises)


class StepWatch(Hook):
    """Hook that encodes the batch of the first step twice.

    The two results must be equal, and the net must stay unchanged. `found` holds the result.
    """

    found: tuple[bool, str] = (False, "")

    def start(self, session: TrainingSession) -> None:
        session.net.train()
        before = {name: value.clone() for name, value in session.net.state_dict().items()}
        with freeze_batch_norm_statistics(session.net):
            first, second = _one_batch(session), _one_batch(session)
        written, moved = _different(before, session.net.state_dict()), _different(first, second)
        if written:
            self.found = False, f"they changed {_names(written)}: change state only in `update` or `refresh`"
        elif moved:
            self.found = (
                False,
                f"the same batch gave a different {_names(moved)}: draw with `rng_key`, not with a generator that keeps its state",
            )
        else:
            self.found = True, "the same batch gave the same result twice, and `net` did not change"


@dataclass(frozen=True)
class CheckedRecipe:
    """Recipe, data and settings of the runs of a check."""

    recipe: str | Recipe | type[Recipe]
    data: Any
    settings: dict[str, Any]
    name: str

    @classmethod
    def from_arguments(cls, recipe: str | Recipe | type[Recipe], data: Any, settings: dict[str, Any]) -> CheckedRecipe:
        """Resolve the recipe, its data and its settings for the runs of a check."""
        method = recipes.load_method(recipe) if isinstance(recipe, str) else recipes.find_method(recipe)
        if not method.recipe_class.trains:
            raise UsageError(f"{method.name} is fitted in closed form: it has no steps to check")
        tiny = {} if isinstance(recipe, Recipe) or not method.tiny[1].data else {"preset": "tiny"}
        if data is None and not method.tiny[1].data:
            raise UsageError(f"{method.name} names no data in its `tiny` settings: --data DATA")
        rows = CHECK_BATCH_SIZE if method.recipe_class.rowwise else min(CHECK_BATCH_SIZE, method.tiny[1].batch_size or CHECK_BATCH_SIZE)
        common = {"steps": CHECK_STEPS, "batch_size": rows, "device": "cpu", "log_every": 1}
        source = data if data is not None else method.tiny[1].data
        return cls(recipe, source, tiny | common | settings, method.name)

    def fit(self, **changes: Any) -> Model:
        """Train one model.

        `changes` override the settings.
        """
        return fit(self.recipe, self.data, **(self.settings | changes))

    @property
    def trusted_recipe(self) -> Any:
        """Return the file or class that opens a saved run, or None for methods of nearfar."""
        own = isinstance(self.recipe, str) and recipes.is_user_recipe(self.recipe)
        return self.recipe if own or isinstance(self.recipe, type) else type(self.recipe) if isinstance(self.recipe, Recipe) else None


class _Stop(Hook):
    """Hook that ends a run before its last step, as a crash would."""

    def step(self, session: TrainingSession, values: Any, z: Any) -> None:
        if session.step == session.steps - 1:
            raise _Stopped


class _Stopped(Exception):
    pass


def check_encoding(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    """Check that `embed` and `objective` are deterministic and do not change the net."""
    watch = StepWatch()
    checked.fit(hooks=[watch], steps=1)
    return watch.found


def check_repeatable(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    """Check that equal seeds give equal runs and different seeds give different runs."""
    differ = _different(whole.net.state_dict(), checked.fit().net.state_dict())
    if differ:
        return False, f"{_names(differ)} came out different: a random number is drawn without a key (numpy's or Python's generator?)"
    if not _different(whole.net.state_dict(), checked.fit(seed=checked.settings.get("seed", 0) + 1).net.state_dict()):
        return False, "another seed gave the same run: nothing in it depends on the seed"
    return True, "the same seed twice: identical bit for bit; another seed: a different run"


def check_resume(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    """Check that a stopped and resumed run equals an uninterrupted one, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(_Stopped):
            checked.fit(out=Path(folder, "run"), save_every=2, hooks=[_Stop()])
        again = resume(Path(folder, "run"), None if isinstance(checked.data, str) else checked.data, recipe=checked.trusted_recipe)
    differ = _different(whole.net.state_dict(), again.net.state_dict())
    if differ:
        return False, f"{_names(differ)} came out different: there is state outside `net`, or a random number without a key"
    return True, f"stopped before step {CHECK_STEPS} and resumed: identical bit for bit"


def check_load(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    """Check that a saved run is loaded without changes."""
    with tempfile.TemporaryDirectory() as folder:
        saved = checked.fit(out=Path(folder, "run"))
        loaded = load(Path(folder, "run"), "cpu", checked.trusted_recipe)
    differ = _different(saved.net.state_dict(), loaded.net.state_dict())
    if differ:
        return False, f"{_names(differ)} came back different: `build` must make all parts of `net`, regardless of the training data"
    return True, "a saved run loads unchanged"


def check_gradients(checked: CheckedRecipe, whole: Model) -> tuple[bool, str]:
    """Check that every trainable parameter receives a gradient."""
    model = checked.fit(weight_decay=0.0)
    before = dict(model.build_untrained().net.named_parameters())
    still = [name for name, p in model.net.named_parameters() if p.requires_grad and torch.equal(p, before[name])]
    if still:
        return False, f"{_names(still)} never changed: no gradient reaches it; if this is intended, use requires_grad_(False)"
    return True, "all trainable parameters changed"


def check_chunks(checked: CheckedRecipe, whole: Model) -> tuple[bool | None, str]:
    """Check that training in chunks takes the same step as training on the whole batch."""
    if not whole.recipe.rowwise:
        return None, "it embeds all rows at once (rowwise = False)"
    own = {f.name for f in dataclasses.fields(whole.recipe)}
    rowwise = {name: value for name, value in {"norm": "layer", "dropout": 0.0}.items() if name in own}
    encoder = whole.modality.rowwise_encoder or whole.config.encoder
    exact = rowwise | {"steps": 2, "optimizer": "sgd", "lr": 0.05, "encoder": encoder, "schedule": "constant", "warmup_ratio": 0.0}
    one = checked.fit(**exact)
    if mixing := sorted({type(m).__name__ for m in one.net.modules() if _mixes_rows(m)}):
        return None, f"{', '.join(mixing)} in the net mixes rows or draws random numbers by position: chunks always differ"
    some, start = checked.fit(chunk_size=CHECK_CHUNK_SIZE, **exact), one.build_untrained().net.state_dict()
    wrong = _largest(one.net.state_dict(), some.net.state_dict()) / max(_largest(one.net.state_dict(), start), 1e-12)
    if wrong > 1e-3:
        return (
            False,
            f"chunks of {CHECK_CHUNK_SIZE} changed the step by {wrong:.1%}: "
            "`embed` mixes rows (that is for `objective`), or draws random numbers by position",
        )
    return True, f"chunks of {CHECK_CHUNK_SIZE} rows give the same step as the whole batch"


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
"""Checks that compare two runs of one seed. They need repeatable runs."""


def _one_batch(session: TrainingSession) -> Tensors:
    """Compute embeddings and loss of one batch: views, `embed`, `objective`."""
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
