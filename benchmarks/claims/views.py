"""No single augmentation suffices; composing crop and colour distortion is what makes SimCLR work (SimCLR, figure 5).

NEARFAR_DATA=FOLDER python benchmarks/claims/views.py

FOLDER holds `cifar10`, or `cifar10-small.npz` made of it. Each operation alone and each two in a row; as in the paper the other view is
left as it is. The small ConvNet on 10,000 images: some minutes a run on one core.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from claim import Claim, Variant
from provenance import DATA
from smallcifar import pack

from nearfar.core import Net
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.similarity import ColorJitter, Compose, Crop, Cutout, GaussianBlur, Grayscale, ImageViews, Rotate, SobelEdges
from nearfar.similarity.image_op import ImageOp

OPS: dict[str, tuple[ImageOp, ...]] = {
    "crop": (Crop(32),), "colour": (ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.2)), "cutout": (Cutout(),),
    "rotate": (Rotate(90.0),),
    "blur": (GaussianBlur(),), "sobel": (SobelEdges(),),
}  # fmt: skip


@dataclass(frozen=True)
class OneSided(SimCLR):
    """SimCLR whose first view is transformed by two named operations and whose second is the image."""

    first: str = "crop"
    second: str = "crop"

    def similarity(self, net: Net) -> ImageViews:
        ops = OPS[self.first] if self.first == self.second else OPS[self.first] + OPS[self.second]
        return ImageViews((Compose(*ops), Compose()))


def small_cifar() -> str:
    """Return the file with part of CIFAR-10, and write it if it is missing."""
    return str(pack(DATA / "cifar10", DATA / "cifar10-small.npz"))


PAIRS = itertools.combinations_with_replacement(OPS, 2)
VARIANTS = {a if a == b else f"{a} + {b}": Variant(OneSided(first=a, second=b)) for a, b in PAIRS}
COMMON = {"data": "cifar10-small.npz", "steps": 200, "batch_size": 256, "lr": 2e-3}
CLAIM = Claim("views", (__doc__ or "").splitlines()[0], VARIANTS, COMMON, source=small_cifar)
parser, is_current = CLAIM.parser, CLAIM.is_current

if __name__ == "__main__":
    CLAIM.run()
