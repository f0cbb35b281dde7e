"""Negatives of the anchor's own class hurt; a loss that corrects for them helps, and one that knows them helps more (debiased, figure 1).

python benchmarks/claims/false_negatives.py
"""

from __future__ import annotations

from dataclasses import dataclass

from claim import Claim, Variant

from nearfar.core import Embeddings, Net, RandomKey, Views
from nearfar.losses import info_nce
from nearfar.recipes.vision.debiased_contrastive import DebiasedContrastive
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.scores import Scores
from nearfar.similarity import choose_views, simclr_views
from nearfar.similarity.labels import LabeledViews


@dataclass(frozen=True)
class NoFalseNegatives(SimCLR):
    """An oracle: labels say which negatives are false, and those are left out. Positives are the other view alone, as ever."""

    uses_labels = True

    def similarity(self, net: Net) -> LabeledViews:  # pyright: ignore[reportIncompatibleMethodOverride]
        return LabeledViews(choose_views(net.sizes, simclr_views))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return super().embed(net, x, rng_key) | {"y": x["label"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey):
        same = z["y"].repeat(2)
        return info_nce(Scores.from_views(z["z0"], z["z1"]).exclude_negatives(same, same) / self.temperature).mean()


VARIANTS = {"SimCLR": Variant(SimCLR())}
VARIANTS |= {f"debiased, eta = {eta:g}": Variant(DebiasedContrastive(false_negative_share=eta)) for eta in (0.05, 0.1, 0.2)}
VARIANTS["false negatives left out (labels)"] = Variant(NoFalseNegatives())
CLAIM = Claim("false_negatives", (__doc__ or "").splitlines()[0], VARIANTS)
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
