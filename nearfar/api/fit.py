"""The system as functions: fit, resume, load, evaluate, embed, report. The command line is a thin layer over these."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import nearfar
from nearfar import recipes
from nearfar.api.embed import embed
from nearfar.api.evaluate import evaluate, measure, own_data, report
from nearfar.api.settings import Settings, understand
from nearfar.core import Machine, NearfarError, Recipe, UsageError
from nearfar.core.files import writable_target
from nearfar.core.ranks import any_rank, rank, world
from nearfar.data import Splits, Tokenizer, inputs_for
from nearfar.data.common.dataset import warn_of_skipped
from nearfar.data.common.stores import digest
from nearfar.evaluate import Table
from nearfar.evaluate.training_hooks import CollapseWatch, EvaluateEvery
from nearfar.export import export
from nearfar.recipes import Method
from nearfar.reports.model_card import remove_card, write_card
from nearfar.train import checkpoint
from nearfar.train.config_check import check_config
from nearfar.train.fit import Hook, refuse_other_than_hooks, train
from nearfar.train.hooks import Checkpoints, Metrics, StopTogether, TensorBoard, tensorboard_installed
from nearfar.train.launch import agree, joined, lost_rank_named
from nearfar.train.model import Donor, Trained, donor_of, entry, load, machine_of, recipe_of, run_of
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import Session, pick_device
from nearfar.train.user_recipes import Trusted, source_of

log = logging.getLogger("nearfar")
Progress = Callable[[int, int], None]
BATCH_NORMS = (torch.nn.modules.batchnorm._BatchNorm,)

__all__ = ["demo", "embed", "evaluate", "export", "fit", "load", "report", "resume"]


@joined()
def fit(
    recipe: str | Recipe | type[Recipe] | None = None,
    data: Any = None,
    *,
    preset: str | None = None,
    config: str | os.PathLike | None = None,
    out: str | os.PathLike | None = None,
    overwrite: bool = False,
    hooks: Sequence[Hook] = (),
    progress: Progress | None = None,
    **settings: Any,
) -> Trained:
    """Train a recipe and return it with its net.

    recipe     a name (`nearfar list`), a Recipe of your own, or a path to a file that defines one
    data       what `--data` takes, an array of images, a pair (images, labels), or a torch dataset
    preset     "tiny" or "paper": the settings that the recipe's file holds
    config     a config.json of an earlier run, to repeat it
    out        the run folder; without one nothing is written
    hooks      called after every step (`nearfar.train.fit.Hook`), on rank 0 where torchrun started several
    settings   any field of the recipe, of `Run` or of `Machine`
    """
    refuse_other_than_hooks(hooks)
    if isinstance(data, (str, os.PathLike)):
        settings["data"] = os.fspath(data)
        data = None
    chosen = understand(recipe, preset, config, settings)
    if data is None and not chosen.run.data:
        raise UsageError("no data given: --data DATA, or --tiny for data that ship with a dependency")
    run = chosen.run
    donor = donor_of(run.init) if run.init else None
    inputs = inputs_for(chosen.recipe, tokenizer=donor.tokenizer if donor else None)
    inputs.refuse_foreign(settings, chosen.recipe)
    splits = inputs.open(run.data if data is None else data, run, progress=progress)
    return _begin(chosen, splits, donor, out, overwrite, hooks)


def _begin(
    chosen: Settings, splits: Splits, donor: Donor | None, out: str | os.PathLike | None, overwrite: bool, hooks: Sequence[Hook]
) -> Trained:
    if donor is not None and chosen.run.encoder == "auto":
        chosen = dataclasses.replace(chosen, run=dataclasses.replace(chosen.run, encoder=donor.run.encoder))
    session = _session(chosen.recipe, chosen.run, chosen.machine, splits, donor)
    agree(session.net, **_known(session, splits))
    if out is None or rank() > 0:
        return _train(session, splits, hooks, None, {})
    with RunFolder.create(out, overwrite) as folder:
        remove_card(folder)
        method = recipes.of(session.recipe)
        config = _config(method, session, splits)
        folder.write_split(splits.test_ids)
        folder.write_tokenizer(_tokenizer(splits))
        folder.write_config(config)
        folder.write_recipe(method.text)
        return _train(session, splits, hooks, folder, config)


@joined()
def resume(
    path: str | os.PathLike,
    data: Any = None,
    *,
    recipe: Trusted = None,
    accept_changes: bool = False,
    hooks: Sequence[Hook] = (),
    progress: Progress | None = None,
) -> Trained:
    """Continue a run from its newest good checkpoint, or from the start if it has none.

    Args:
        path: the run folder.
        data: the same data again, if the run was trained on an array.
        recipe: the file or the class of a recipe that does not come with nearfar.
        accept_changes: continue with the values of config.json even if the newest checkpoint was written with others.
        hooks: called after every step, as in `fit`.
        progress: called while data are read.

    Raises:
        UsageError: if config.json differs from the config of the newest checkpoint.
        NearfarError: if another process trains in the folder, or if the data have changed.
    """
    refuse_other_than_hooks(hooks)
    folder = RunFolder.open(path)
    with folder.lock() if rank() == 0 else contextlib.nullcontext():
        any_rank(False)  # no rank reads the folder before rank 0 holds the lock
        config = folder.config()
        found = checkpoint.newest(folder.checkpoints)
        check_config(folder, config, found, accept_changes)
        steps = entry(config, "run.steps", int, folder.path)
        if found is not None and found.step >= steps:
            log.info("%s is finished: all %d steps are done", folder.path, steps)
            return load(folder.path, machine_of(config, folder.path).device, recipe)
        if rank() == 0:
            checkpoint.clean(folder.checkpoints, found.step if found else -1)
        return _continue(folder, config, found, data, recipe_of(config, folder.path, recipe), hooks, progress)


def _continue(
    folder: RunFolder,
    config: dict[str, Any],
    found: checkpoint.Checkpoint | None,
    data: Any,
    method: Recipe,
    hooks: Sequence[Hook],
    progress: Progress | None,
) -> Trained:
    """Open the data of a run, restore its state and train to its end. Rank 0 holds the lock."""
    run, machine = run_of(config, folder.path), machine_of(config, folder.path)
    source = own_data(run, folder) if data is None else data
    splits = inputs_for(method, tokenizer=folder.tokenizer()).open(source, run, folder.split(), progress)
    _check_data(splits, method, config, folder, run.data or source)
    donor = donor_of(run.init) if run.init and found is None else None
    session = _session(method, run, machine, splits, donor)
    if found is not None:
        found.load(session.net, session.optimizers)
        session.step = found.step
    agree(session.net, **_known(session, splits))
    if rank() > 0:
        return _train(session, splits, hooks, None, {})
    folder.rewind_metrics(session.step)
    log.info("continuing %s at step %d of %d", folder.path, session.step, session.steps)
    return _train(session, splits, hooks, folder, config)


def _check_data(splits: Splits, method: Recipe, config: dict[str, Any], folder: RunFolder, source: Any) -> None:
    """Refuse data whose samples or labels are not those that the run was trained on."""
    if splits.train.fingerprint != entry(config, "data.fingerprint", str, folder.path):
        raise NearfarError(f"the data at {source} are not those that {folder.path} was trained on: they have changed")
    labels = taught(method, splits)
    if labels != config["data"].get("taught", labels):
        raise NearfarError(f"the labels at {source} are not those that {folder.path} was trained with: they have changed")


def _session(recipe: Recipe, run: Any, machine: Machine, splits: Splits, donor: Donor | None) -> Session:
    data = splits.train if recipe.uses_labels else splits.train.unlabelled()
    return Session(recipe, run, machine, data, pick_device(machine.device), donor.tensors if donor else None)


def taught(recipe: Recipe, splits: Splits) -> str:
    """A hash of what a recipe learns from besides the samples: their labels and scores. Empty for one that sees none."""
    if not recipe.uses_labels:
        return ""
    told = [x for x in (getattr(splits.train, name, None) for name in ("labels", "scores")) if x is not None]
    return digest("\n".join(splits.train.classes).encode(), *(x.tobytes() for x in told))


def _known(session: Session, splits: Splits) -> dict[str, str]:
    """What all ranks must have in common, besides the weights."""
    return {
        "versions": f"nearfar {nearfar.__version__}, torch {torch.__version__}",
        "settings": repr((session.recipe, session.run, session.machine, session.step)),
        "data": f"{splits.train.fingerprint} {taught(session.recipe, splits)} {len(session.data)}",
    }


def _train(session: Session, splits: Splits, hooks: Sequence[Hook], folder: RunFolder | None, config: dict[str, Any]) -> Trained:
    metrics: list[dict[str, Any]] = folder.metrics() if folder else []
    session.recorders.append(metrics.append)
    row = _hooks(session, splits, hooks, folder, config) if rank() == 0 else []
    row = [StopTogether(), *row] if world() > 1 else row
    if session.machine.chunk and any(isinstance(m, BATCH_NORMS) for m in session.net.modules()):
        log.warning(
            "--chunk with batch normalisation: each chunk is normalised by itself, so that gradients are not those of the whole batch. "
            "--encoder %s-gn and, where the recipe has it, --norm layer are exact", session.run.encoder.removesuffix("-gn"),
        )  # fmt: skip
    if session.recipe.inherits and not session.run.init:
        parts = " and ".join(part.split(".")[0] for part in session.recipe.inherits)
        log.warning("%s goes on from a finished run: without --init RUN its %s is random", type(session.recipe).__name__, parts)
    with _log_file(folder), lost_rank_named(), _signals(session), _deterministic(session.machine.deterministic):
        log.info(
            "%s: %d samples, batch %s, %d steps on %s%s",
            type(session.recipe).__name__,
            len(session.data),
            session.run.batch,
            session.steps,
            session.device.type if world() > 1 else session.device,
            f", {world()} ranks" if world() > 1 else "",
        )
        warn_of_skipped([splits.train])
        train(session, row)
    session.net.eval()
    told = (_tokenizer(splits), splits.test_ids, splits.train.fingerprint)
    trained = Trained(session.recipe, session.run, session.net, session.step, session.device, folder, metrics, *told)
    write_card(trained)
    return trained


def _tokenizer(splits: Splits) -> Tokenizer | None:
    return getattr(splits.train, "tokenizer", None)


def _hooks(session: Session, splits: Splits, hooks: Sequence[Hook], folder: RunFolder | None, config: dict[str, Any]) -> list[Hook]:
    row: list[Hook] = [*hooks, Metrics(), CollapseWatch()]
    every = session.machine.eval_every
    if every and splits.test is not None and splits.test.labels is not None:
        row.append(EvaluateEvery(every, splits.train, splits.test))
    elif every:
        log.warning("--eval-every needs a labelled test split, and there is none: the run is not evaluated while it trains")
    if folder is not None:
        session.recorders.append(folder.write_metrics)
        row += [TensorBoard(folder)] if tensorboard_installed() else []
        row.append(Checkpoints(folder, config))
    return row


def _config(method: Method, session: Session, splits: Splits) -> dict[str, Any]:
    """All that a run can be repeated from. Session has turned every default into the number it stands for."""
    return {
        "nearfar": nearfar.__version__,
        "torch": torch.__version__,
        "recipe": method.name,
        **source_of(method),
        "hyper": dataclasses.asdict(session.recipe),
        "run": dataclasses.asdict(session.run),
        "machine": dataclasses.asdict(session.machine),
        "data": {
            "fingerprint": splits.train.fingerprint,
            "taught": taught(session.recipe, splits),
            "train": len(splits.train),
            "test": len(splits.test) if splits.test is not None else 0,
            "skipped": list(splits.train.skipped),
        },
        "sizes": dict(session.sizes),
    }


@contextlib.contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    """Only deterministic algorithms within the block; afterwards as before."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextlib.contextmanager
def _log_file(folder: RunFolder | None) -> Iterator[None]:
    """What is said during a run is also written to its log.txt."""
    if folder is None:
        yield
        return
    handler = logging.FileHandler(writable_target(folder.log_file))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        yield
    except NearfarError as e:
        handler.emit(log.makeRecord("nearfar", logging.ERROR, "", 0, str(e), (), None))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def _signals(session: Session) -> Iterator[None]:
    """The first interrupt lets the step end and saves; a second one stops at once. Only the main thread may listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if session.signalled:
            raise KeyboardInterrupt
        session.signalled = True
        session.interrupted = world() == 1

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except BaseException:
        if world() > 1:  # this rank ends, and torchrun's SIGTERM must not cut off its last words
            before = {}
        raise
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def demo(out: str | os.PathLike = "demo", seed: int = 0, *, overwrite: bool = False, hooks: Sequence[Hook] = ()) -> Table:
    """SimCLR on scikit-learn's digits: train, measure, write the report."""
    trained = fit("simclr", preset="tiny", out=out, overwrite=overwrite, seed=seed, hooks=hooks)
    evaluation = measure(trained)
    write_card(trained, evaluation.table)
    report(trained, evaluation)
    return evaluation.table
