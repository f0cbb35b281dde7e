"""Train, measure and report once on a bundled dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.api.report import write_model_report
from nearfar.evaluate import ResultTable
from nearfar.reports.model_card import write_model_card
from nearfar.train.training_loop import Hook


def run_demo(out: str | os.PathLike = "demo", seed: int = 0, *, overwrite: bool = False, hooks: Sequence[Hook] = ()) -> ResultTable:
    """Train SimCLR on scikit-learn's digits, evaluate it and write the report."""
    model = fit("simclr", preset="tiny", out=out, overwrite=overwrite, seed=seed, hooks=hooks)
    evaluation = measure_model(model)
    write_model_card(model, evaluation.table)
    write_model_report(model, evaluation)
    return evaluation.table
