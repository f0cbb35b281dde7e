"""What a recipe gives back, looked at where it comes back: a mistake is named by its method, not by the line that stumbles over it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nearfar.core import Embeddings, NearfarError, Recipe


def check_embedded(recipe: Recipe, output: Any) -> Embeddings:
    """`embed` gives tensors by name, each with a first axis: what is cut, gathered and put together again are rows."""
    name = f"{type(recipe).__name__}.embed"
    if not isinstance(output, dict) or not output:
        raise NearfarError(f'{name} must return tensors by name, such as {{"z0": …, "z1": …}}; it returned {_words(output)}')
    for key, value in output.items():
        if not isinstance(value, Tensor) or value.ndim == 0:
            raise NearfarError(f"{name}: {key!r} must be a tensor of rows; it is {_words(value)}. Plain numbers belong into `objective`")
    return output


def check_objective(recipe: Recipe, output: Any) -> dict[str, Tensor]:
    """`objective` gives the loss, one number, alone or with what else is logged."""
    name = f"{type(recipe).__name__}.objective"
    log = output if isinstance(output, dict) else {"loss": output}
    if "loss" not in log:
        raise NearfarError(f'{name} returned a dict without "loss": it has {", ".join(map(repr, log)) or "nothing"}')
    for key, value in log.items():
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise NearfarError(
                f"{name}: {key!r} must be a tensor of one number; it is {_words(value)}. Losses of rows are averaged by .mean()"
            )
    return log


def check_loss_depends(recipe: Recipe, loss: Tensor) -> None:
    """A loss that no parameter changes trains nothing."""
    if not loss.requires_grad:
        raise NearfarError(
            f"the loss of {type(recipe).__name__} depends on no parameter that it trains: is what it is made of detached, or made "
            "under torch.no_grad()? `trains` names the parameters by their prefixes"
        )


def _words(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
