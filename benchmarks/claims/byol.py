"""BYOL on digits without predictor, without slow target, and without batch normalization.

python benchmarks/claims/byol.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from claim import DIGITS, Claim, Variant
from torch import nn

from nearfar.core import Net, Sizes
from nearfar.recipes.vision.byol import BYOL

TEXT = (
    "The papers report that BYOL collapses without its predictor or its slow target (BYOL, table 5), and that it needs no batch "
    "normalization (arXiv:2010.10241). In these runs it keeps its accuracy without either one and scores below its untrained "
    "encoder without both. Without batch normalization it gains nothing over its untrained encoder; without batch normalization "
    "and predictor it does gain."
)


@dataclass(frozen=True)
class WithoutPredictor(BYOL):
    """The online projection itself must be the target's."""

    def build(self, sizes: Sizes, encoder) -> Net:
        net = super().build(sizes, encoder)
        net.predictor = nn.Identity()
        return net


@dataclass(frozen=True)
class WithoutEma(BYOL):
    """The target is the online network of the step before: no slow copy, still no gradient into it."""

    def update(self, net, z, progress):
        net.target.follow(net.online, 0.0)


@dataclass(frozen=True)
class WithNeither(WithoutPredictor, WithoutEma):
    """Two views through one network, told to be equal."""


SMALL: dict[str, Any] = {"dim": 128, "hidden_dim": 256}
PLAIN = {"encoder": "convnet-gn"}
VARIANTS = {
    "BYOL": Variant(BYOL(**SMALL)),
    "no predictor": Variant(WithoutPredictor(**SMALL)),
    "no slow target": Variant(WithoutEma(**SMALL)),
    "no predictor, no slow target": Variant(WithNeither(**SMALL)),
    "no batch norm": Variant(BYOL(norm="layer", **SMALL), PLAIN),
    "no batch norm, no predictor": Variant(WithoutPredictor(norm="layer", **SMALL), PLAIN),
}
CLAIM = Claim("byol", TEXT, VARIANTS, {**DIGITS, "batch_size": 128})
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
