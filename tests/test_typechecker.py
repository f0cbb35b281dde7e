"""The type checker of the tests finds wrong types and shapes in the package."""

from __future__ import annotations

import dataclasses

import jaxtyping
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor
from typechecker import check_types

from nearfar import losses
from nearfar.core import RandomKey, TrainConfig
from nearfar.scores import Scores


@check_types
def transpose(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return x.T


@check_types
def take(x: Float[Tensor, " n"], count: int) -> Float[Tensor, " {count}"]:
    return x[:3]


@check_types
@dataclasses.dataclass
class Pair:
    left: Float[Tensor, " n"]
    right: Float[Tensor, " n"]

    @check_types
    @classmethod
    def repeat(cls, x: Tensor) -> Pair:
        return cls(x, x)

    @check_types
    @staticmethod
    def name() -> str:
        return 5  # type: ignore[return-value]

    @check_types
    @property
    def size(self) -> str:
        return len(self.left)  # type: ignore[return-value]


def test_package_functions_are_checked():
    for call in (
        lambda: RandomKey("seed"),
        lambda: TrainConfig(batch_size="8"),
        lambda: Scores.from_pairs(torch.ones(3, 2, dtype=torch.long), torch.ones(3, 2)),
        lambda: losses.uniformity(torch.ones(4)),
    ):
        with pytest.raises(TypeCheckError):
            call()


def test_a_wrong_result_is_found():
    assert transpose(torch.ones(2, 2)).shape == (2, 2)
    with pytest.raises(TypeCheckError, match=r"transpose\(\) return(.|\n)*n=2\nd=3"):
        transpose(torch.ones(2, 3))


def test_a_size_may_be_the_value_of_an_argument():
    assert len(take(torch.ones(5), count=3)) == 3
    with pytest.raises(TypeCheckError):
        take(torch.ones(5), 4)


def test_sizes_of_one_call_do_not_bind_another():
    assert len(take(torch.ones(5), 3)) == len(take(torch.ones(7), 3)) == 3


def test_dataclasses_methods_and_properties_are_checked():
    pair = Pair.repeat(torch.ones(2))
    for call in (lambda: Pair(torch.ones(2), torch.ones(3)), lambda: Pair.repeat(2), pair.name, lambda: pair.size):
        with pytest.raises(TypeCheckError):
            call()


def test_functions_within_functions_are_checked():
    def build(shift):
        @check_types
        def move(x: int) -> int:
            return x + shift

        return move

    assert [build(1)(1), build(2)(1)] == [2, 3]
    for shift, x in ((1, "one"), (0.5, 1)):
        with pytest.raises(TypeCheckError):
            build(shift)(x)


def test_checks_can_be_disabled():
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        assert transpose(torch.ones(2, 3)).shape == (3, 2)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
