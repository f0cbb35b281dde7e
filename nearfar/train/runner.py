"""Runner of a training: signals, log file, deterministic algorithms, and the hooks of every run."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.core import NearfarError
from nearfar.core.files import resolve_writable_path
from nearfar.core.ranks import get_rank, get_world_size
from nearfar.data.common.dataset import warn_about_skipped
from nearfar.train.hooks import CheckpointHook, MetricsHook, SynchronizedStopHook, TensorBoardHook, is_tensorboard_installed
from nearfar.train.process_group import translate_rank_errors
from nearfar.train.run_folder import RunFolder
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import Hook, train

logger = logging.getLogger("nearfar")


def run_training(
    session: TrainingSession,
    hooks: Sequence[Hook],
    measuring_hooks: Sequence[Hook],
    folder: RunFolder | None,
    stored_config: dict[str, Any],
) -> None:
    """Train a session to its end, with log file, checkpoints and a clean stop on signals.

    Args:
        session: the training.
        hooks: the user's hooks. They come first.
        measuring_hooks: hooks that measure while the model trains.
        folder: folder of the run. None writes nothing.
        stored_config: content of config.json, saved with every checkpoint.
    """
    row = list_hooks(session, hooks, measuring_hooks, folder, stored_config) if get_rank() == 0 else []
    row = [SynchronizedStopHook(), *row] if get_world_size() > 1 else row
    _warn_of_settings(session)
    with log_to_file(folder), translate_rank_errors(), stop_on_signals(session), deterministic_algorithms(session.runtime.deterministic):
        logger.info(
            "%s: %d samples, batch %s, %d steps on %s%s",
            type(session.recipe).__name__,
            len(session.data),
            session.config.batch_size,
            session.steps,
            session.device.type if get_world_size() > 1 else session.device,
            f", {get_world_size()} ranks" if get_world_size() > 1 else "",
        )
        warn_about_skipped([session.data])
        train(session, row)
    session.net.eval()


def list_hooks(
    session: TrainingSession,
    hooks: Sequence[Hook],
    measuring_hooks: Sequence[Hook],
    folder: RunFolder | None,
    stored_config: dict[str, Any],
) -> list[Hook]:
    """Return the user's hooks and the hooks of every run.

    The checkpoint hook comes last, because it saves the state that the other hooks recorded.
    """
    row: list[Hook] = [*hooks, MetricsHook(), *measuring_hooks]
    if folder is not None:
        session.metric_recorders.append(folder.write_metrics)
        row += [TensorBoardHook(folder)] if is_tensorboard_installed() else []
        row.append(CheckpointHook(folder, stored_config))
    return row


def _warn_of_settings(session: TrainingSession) -> None:
    """Warn of settings that change the result in unexpected ways."""
    if session.runtime.chunk_size and any(isinstance(m, _BatchNorm) for m in session.net.modules()):
        logger.warning(
            "--chunk-size with batch normalization: each chunk is normalized separately, so gradients differ from those "
            "of the whole batch. Use --encoder %s-gn and, where the recipe has it, --norm layer for exact gradients",
            session.config.encoder.removesuffix("-gn"),
        )  # fmt: skip
    if session.recipe.inherits and not session.config.init_from:
        parts = " and ".join(part.split(".")[0] for part in session.recipe.inherits)
        logger.warning("%s continues from a finished run: without --init-from RUN its %s is random", type(session.recipe).__name__, parts)


@contextlib.contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Use only deterministic algorithms within the block.

    The previous setting is restored afterwards.
    """
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextlib.contextmanager
def log_to_file(folder: RunFolder | None) -> Iterator[None]:
    """Write the log messages of a run to its log.txt as well.

    An error that ends the run is logged, too.
    """
    if folder is None:
        yield
        return
    handler = logging.FileHandler(resolve_writable_path(folder.log_file))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    except NearfarError as e:
        handler.emit(logger.makeRecord("nearfar", logging.ERROR, "", 0, str(e), (), None))
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def stop_on_signals(session: TrainingSession) -> Iterator[None]:
    """Stop the training on SIGINT or SIGTERM.

    After the first signal the current step ends and a checkpoint is saved. A second signal stops at once.
    Signals are handled in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if session.signaled:
            raise KeyboardInterrupt
        session.signaled = True
        session.interrupted = get_world_size() == 1

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except BaseException:
        if get_world_size() > 1:  # torchrun's SIGTERM must not cut off this rank's error message
            before = {}
        raise
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
