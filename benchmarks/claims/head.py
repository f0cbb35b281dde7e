"""A projection head that is thrown away makes the representation before it better, and a non-linear one more so (SimCLR, section 4.2).

python benchmarks/claims/head.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claim import Claim, Variant
from torch import nn

from nearfar.core import Net, Sizes
from nearfar.heads import mlp
from nearfar.recipes.vision.simclr import SimCLR


@dataclass(frozen=True)
class WithHead(SimCLR):
    """SimCLR with another head, or none."""

    head: Literal["none", "linear", "mlp"] = "mlp"

    def build(self, sizes: Sizes, encoder) -> Net:
        width = encoder.dim
        heads = {"none": nn.Identity(), "linear": mlp(width, self.dim), "mlp": mlp(width, width, self.dim, norm=self.norm)}
        return Net(encoder=encoder, head=heads[self.head])


NAMES: dict[str, Literal["none", "linear", "mlp"]] = {"no head": "none", "linear head": "linear", "MLP head": "mlp"}
CLAIM = Claim("head", (__doc__ or "").splitlines()[0], {label: Variant(WithHead(head=head)) for label, head in NAMES.items()})
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
