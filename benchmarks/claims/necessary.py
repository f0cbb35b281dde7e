"""Alignment alone collapses, uniformity alone learns nothing that lasts: both are necessary (Wang & Isola, figure 7).

python benchmarks/claims/necessary.py
"""

from __future__ import annotations

from dataclasses import dataclass

from claim import Claim, Variant
from torch import Tensor

from nearfar.core import Embeddings, Net, RandomKey
from nearfar.losses import alignment, uniformity
from nearfar.recipes.vision.simclr import SimCLR


@dataclass(frozen=True)
class AlignUniform(SimCLR):
    """(1 - share) alignment + share uniformity, both weighted as they are."""

    limits = {"share": (0.0, 1.0)}  # noqa: RUF012
    share: float = 0.5

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        spread = (uniformity(z["z0"]) + uniformity(z["z1"])) / 2
        return 2 * ((1 - self.share) * alignment(z["z0"], z["z1"]) + self.share * spread)


SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
VARIANTS = {f"share of uniformity {share:g}": Variant(AlignUniform(share=share), at=share) for share in SHARES}
CLAIM = Claim("necessary", (__doc__ or "").splitlines()[0], VARIANTS, axis="share of uniformity")
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
