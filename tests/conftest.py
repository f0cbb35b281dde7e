"""Shared by all tests: shapes and types of the package are checked at run time.

With NEARFAR_NO_SKIP=1 (as in CI, where data and tools are laid out) a skip is a failure.
"""

from __future__ import annotations

import os

import jaxtyping
from typechecker import check_types

os.environ["OMP_NUM_THREADS"] = "1"  # here and in every process that a test starts: the cores are for the workers of pytest
jaxtyping.jaxtyped = check_types  # the decorator that the import hook writes before each function
jaxtyping.install_import_hook("nearfar", "typechecker.checked")  # before anything of nearfar is imported

import logging  # noqa: E402
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("nearfar", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("nearfar")
torch.set_num_threads(1)


def unskipped(report):
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("NEARFAR_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(items):
    for item in items:
        if "data_folder" in item.fixturenames:
            item.add_marker("data")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return unskipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return unskipped((yield))


@pytest.fixture(autouse=True)
def fresh_logging():
    """The command line sets up the logger "nearfar" for a whole process; each test begins without that."""
    logger = logging.getLogger("nearfar")
    yield
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def same_draws():
    """What a test draws from torch's own generator does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture
def data_folder() -> Path:
    """Where real data sets lie, by name."""
    return Path(os.environ.get("NEARFAR_DATA", "~/.cache/nearfar")).expanduser()
