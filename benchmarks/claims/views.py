"""No single augmentation suffices; composing crop and colour distortion is what makes SimCLR work (SimCLR, figure 5).

python benchmarks/claims/views.py --data CIFAR10-FOLDER

Rows, first operation; columns, second; the diagonal is one alone. As in the paper the other view is left as it is.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from claim import Variant, claim

from nearfar.core import Net
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.similarity import Augment, Blur, Compose, Crop, Cutout, Grey, Jitter, Rotate, Sobel
from nearfar.similarity.op import Op

OPS: dict[str, tuple[Op, ...]] = {
    "crop": (Crop(32),), "colour": (Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), Grey(p=0.2)), "cutout": (Cutout(),), "rotate": (Rotate(90.0),),
    "blur": (Blur(),), "sobel": (Sobel(),),
}  # fmt: skip


@dataclass(frozen=True)
class OneSided(SimCLR):
    """SimCLR whose first view is transformed by two named operations and whose second is the image."""

    first: str = "crop"
    second: str = "crop"

    def similarity(self, net: Net) -> Augment:
        ops = OPS[self.first] if self.first == self.second else OPS[self.first] + OPS[self.second]
        return Augment((Compose(*ops), Compose()))


if __name__ == "__main__":
    variants = {f"{a} + {b}" if a != b else a: Variant(OneSided(first=a, second=b), group=a) for a, b in itertools.product(OPS, OPS)}
    folder = Path(os.environ.get("NEARFAR_DATA", Path.home() / ".cache" / "nearfar")) / "cifar10"
    common = {"data": str(folder), "encoder": "resnet18", "batch": 512, "epochs": 10, "optimizer": "sgd", "lr": 0.2, "precision": "bf16"}
    claim("views", (__doc__ or "").splitlines()[0], variants, common)
