"""The temperature matters: too low and only the nearest negatives count, too high and all count alike (SimCLR, table 5).

python benchmarks/claims/temperature.py
"""

from __future__ import annotations

from claim import Variant, claim

from nearfar.recipes.vision.simclr import SimCLR

TAUS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

if __name__ == "__main__":
    variants = {f"tau = {tau:g}": Variant(SimCLR(tau=tau), at=tau) for tau in TAUS}
    claim("temperature", (__doc__ or "").splitlines()[0], variants, axis="temperature (log)")
