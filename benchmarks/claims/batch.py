"""SimCLR needs large batches, which are its negatives; MoCo's negatives are a queue, and it does not (MoCo, section 4.1; SimCLR, figure 9).

python benchmarks/claims/batch.py

Every run sees the same number of images: small batches take more steps.
"""

from __future__ import annotations

from claim import DIGITS, Claim, Variant

from nearfar.recipes.vision.moco import MoCo
from nearfar.recipes.vision.simclr import SimCLR

SEEN = 300 * 256
BATCHES = (16, 32, 64, 128, 256, 512)


def variants() -> dict[str, Variant]:
    """Return both methods at every batch size, each seeing the same number of images."""
    found = {}
    for batch in BATCHES:
        settings = {"batch_size": batch, "steps": SEEN // batch, "lr": 2e-3 * (batch / 256) ** 0.5}
        found[f"SimCLR, batch {batch}"] = Variant(SimCLR(), settings, at=batch, group="SimCLR")
        found[f"MoCo, batch {batch}"] = Variant(MoCo(queue_size=1024), settings, at=batch, group="MoCo")
    return found


CLAIM = Claim("batch", (__doc__ or "").splitlines()[0], variants(), DIGITS, axis="batch (log)")
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
