"""Checks of a recipe's outputs.

They run where the outputs come back. An error therefore names the method that is wrong, and not the line that
fails later.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nearfar.core import Embeddings, NearfarError, Recipe


def check_embedded(recipe: Recipe, output: Any) -> Embeddings:
    """Check that `embed` returned tensors by name, each with a first axis.

    The first axis holds the rows, which are split, gathered and joined again.

    Raises:
        NearfarError: if the output is anything else.
    """
    name = f"{type(recipe).__name__}.embed"
    if not isinstance(output, dict) or not output:
        raise NearfarError(f'{name} must return tensors by name, such as {{"z0": …, "z1": …}}; it returned {_words(output)}')
    for key, value in output.items():
        if not isinstance(value, Tensor) or value.ndim == 0:
            raise NearfarError(f"{name}: {key!r} must be a tensor of rows; it is {_words(value)}. Plain numbers belong in `objective`")
    return output


def check_objective(recipe: Recipe, output: Any) -> dict[str, Tensor]:
    """Check that `objective` returned a loss, and return all logged values by name.

    The loss is a tensor with one number, alone or in a dict with other logged values.

    Raises:
        NearfarError: if the loss is missing, or if a value has more than one number.
    """
    name = f"{type(recipe).__name__}.objective"
    log = output if isinstance(output, dict) else {"loss": output}
    if "loss" not in log:
        raise NearfarError(f'{name} returned a dict without "loss": it has {", ".join(map(repr, log)) or "nothing"}')
    for key, value in log.items():
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise NearfarError(
                f"{name}: {key!r} must be a tensor of one number; it is {_words(value)}. Average losses of rows with .mean()"
            )
    return log


def check_loss_depends(recipe: Recipe, loss: Tensor) -> None:
    """Raise `NearfarError` if the loss depends on no parameter.

    Such a loss trains nothing.
    """
    if not loss.requires_grad:
        raise NearfarError(
            f"the loss of {type(recipe).__name__} does not depend on a trained parameter: are its inputs detached, or computed "
            "under torch.no_grad()? `trains` names the parameters by their prefixes"
        )


def _words(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
