"""The views of the papers, with their published settings; one line an operation, in the papers' order.

The one liberty taken: flips stand beside the crop, so that the two are one interpolation. A flip commutes with
every filter that follows, so the distribution of the views is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from nearfar.core import Sizes
from nearfar.similarity.augment import Augment
from nearfar.similarity.color import Grey, Jitter, Solarise
from nearfar.similarity.compose import Compose
from nearfar.similarity.image_op import Op
from nearfar.similarity.motions import Crop, Elastic, Flip, Rotate, Shear
from nearfar.similarity.texture import Blur

SMALL = 40
"""Up to this many pixels a side images are small: no blur, and half of SimCLR's colour distortion, as is usual for CIFAR."""


def views_for(sizes: Sizes, photo: Callable[[int], Augment]) -> Augment:
    """Views that suit the data: the method's own (`photo`), made for photographs, or `handwriting_views` for small grey images."""
    if sizes["channels"] == 1 and sizes["size"] <= SMALL:
        return handwriting_views(sizes["size"])
    return photo(sizes["size"])


def simclr_views(size: int, strength: float | None = None, views: int = 2, grey: float = 0.2, smallest: float = 0.08) -> Augment:
    """SimCLR (Chen et al. 2020, appendix A): crop, flip, colour distortion of a given strength, colour drop, blur.

    The strength is 1, as on ImageNet, unless told otherwise; for small images 0.5, as on CIFAR-10 (appendix B.9). Colours are
    dropped with probability `grey`; a view shows at least the share `smallest` of the picture.
    """
    return Augment.repeat(Compose(Crop(size, scale=(smallest, 1.0)), *_simclr_filters(size, strength, grey)), views)


def moco_v1_views(size: int, views: int = 2) -> Augment:
    """MoCo v1 (He et al. 2020), as in instance discrimination (Wu et al. 2018): strong jitter always, no blur."""
    return Augment.repeat(Compose(Crop(size, scale=(0.2, 1.0)), Flip(), Grey(p=0.2), Jitter(0.4, 0.4, 0.4, 0.4)), views)


def moco_v2_views(size: int, views: int = 2, grey: float = 0.2) -> Augment:
    """MoCo v2 (Chen et al. 2020): SimCLR's operations with a weaker jitter and larger crops; `grey` as there."""
    pipeline = Compose(
        Crop(size, scale=(0.2, 1.0)),
        Flip(),
        Jitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        Grey(p=grey),
        *_blur(size, 0.5),
    )
    return Augment.repeat(pipeline, views)


def byol_views(size: int, grey: float = 0.2, smallest: float = 0.08) -> Augment:
    """BYOL (Grill et al. 2020, appendix B), also of Barlow Twins: two views that differ in how often they are blurred and solarised."""

    def pipeline(blur: float, solarise: float) -> Op:
        return Compose(
            Crop(size, scale=(smallest, 1.0)),
            Flip(),
            Jitter(0.4, 0.4, 0.2, 0.1, p=0.8),
            Grey(p=grey),
            *_blur(size, blur),
            Solarise(p=solarise),
        )

    return Augment((pipeline(blur=1.0, solarise=0.0), pipeline(blur=0.1, solarise=0.2)))


def swav_views(size: int, small: int | None = None, smalls: int = 6, strength: float | None = None, grey: float = 0.2) -> Augment:
    """SwAV's multi-crop (Caron et al. 2020): two crops of `size` pixels and `smalls` of few pixels from small windows.

    The paper: 2 of 224 pixels and 6 of 96; by default `small` is 3/7 of `size`, as there. Views 0 and 1 are the large ones.
    """
    filters = _simclr_filters(size, strength, grey)
    large = Compose(Crop(size, scale=(0.14, 1.0)), *filters)
    little = Compose(Crop(small or round(size * 3 / 7), scale=(0.05, 0.14)), *filters)
    return Augment((large,) * 2 + (little,) * smalls)


def handwriting_views(size: int, views: int = 2) -> Augment:
    """Small grey images whose mirror image means something else: crop, slight rotation and shear, elastic warp (Simard et al. 2003)."""
    pipeline = Compose(
        Crop(size, scale=(0.6, 1.0)),
        Rotate(15.0),
        Shear(10.0),
        Elastic(pixels=size / 20),
    )
    return Augment.repeat(pipeline, views)


def _simclr_filters(size: int, strength: float | None, grey: float = 0.2) -> tuple[Op, ...]:
    s = (0.5 if size <= SMALL else 1.0) if strength is None else strength
    return (Flip(), Jitter(0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s, p=0.8), Grey(p=grey), *_blur(size, 0.5))


def _blur(size: int, p: float) -> tuple[Op, ...]:
    """Blur for images large enough to be recognised afterwards."""
    return (Blur(p=p),) if size > SMALL else ()
