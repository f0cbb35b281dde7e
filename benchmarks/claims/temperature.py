"""The temperature matters: too low and only the nearest negatives count, too high and all count alike (SimCLR, table 5).

python benchmarks/claims/temperature.py
"""

from __future__ import annotations

from claim import Claim, Variant

from nearfar.recipes.vision.simclr import SimCLR

TAUS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

VARIANTS = {f"tau = {tau:g}": Variant(SimCLR(temperature=tau), at=tau) for tau in TAUS}
CLAIM = Claim("temperature", (__doc__ or "").splitlines()[0], VARIANTS, axis="temperature (log)")
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
