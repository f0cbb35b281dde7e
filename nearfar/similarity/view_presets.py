"""The views of the papers, with their published settings; one line an operation, in the papers' order.

The one liberty taken: flips stand beside the crop, so that the two are one interpolation. A flip commutes with
every filter that follows, so the distribution of the views is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from nearfar.core import Sizes
from nearfar.similarity.augment import ImageViews
from nearfar.similarity.color import ColorJitter, Grayscale, Solarize
from nearfar.similarity.compose import Compose
from nearfar.similarity.geometric_ops import Crop, Elastic, Flip, Rotate, Shear
from nearfar.similarity.image_op import ImageOp
from nearfar.similarity.texture import GaussianBlur

SMALL_IMAGE_SIZE = 40
"""Up to this many pixels a side images are small: no blur, and half of SimCLR's colour distortion, as is usual for CIFAR."""


def choose_views(sizes: Sizes, build_photo_views: Callable[[int], ImageViews]) -> ImageViews:
    """Views that suit the data: the method's own (`photo`), made for photographs, or `handwriting_views` for small grey images."""
    if sizes["channels"] == 1 and sizes["size"] <= SMALL_IMAGE_SIZE:
        return handwriting_views(sizes["size"])
    return build_photo_views(sizes["size"])


def simclr_views(
    size: int, color_strength: float | None = None, num_views: int = 2, gray_prob: float = 0.2, min_crop_scale: float = 0.08
) -> ImageViews:
    """SimCLR (Chen et al. 2020, appendix A): crop, flip, colour distortion of a given strength, colour drop, blur.

    The strength is 1, as on ImageNet, unless told otherwise; for small images 0.5, as on CIFAR-10 (appendix B.9). Colours are
    dropped with probability `grey`; a view shows at least the share `smallest` of the picture.
    """
    return ImageViews.repeat(
        Compose(Crop(size, scale=(min_crop_scale, 1.0)), *_build_simclr_filters(size, color_strength, gray_prob)), num_views
    )


def moco_v1_views(size: int, num_views: int = 2) -> ImageViews:
    """MoCo v1 (He et al. 2020), as in instance discrimination (Wu et al. 2018): strong jitter always, no blur."""
    return ImageViews.repeat(Compose(Crop(size, scale=(0.2, 1.0)), Flip(), Grayscale(prob=0.2), ColorJitter(0.4, 0.4, 0.4, 0.4)), num_views)


def moco_v2_views(size: int, num_views: int = 2, gray_prob: float = 0.2) -> ImageViews:
    """MoCo v2 (Chen et al. 2020): SimCLR's operations with a weaker jitter and larger crops; `grey` as there."""
    pipeline = Compose(
        Crop(size, scale=(0.2, 1.0)),
        Flip(),
        ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8),
        Grayscale(prob=gray_prob),
        *_build_blur(size, 0.5),
    )
    return ImageViews.repeat(pipeline, num_views)


def byol_views(size: int, gray_prob: float = 0.2, min_crop_scale: float = 0.08) -> ImageViews:
    """BYOL (Grill et al. 2020, appendix B), also of Barlow Twins: two views that differ in how often they are blurred and solarised."""

    def pipeline(blur: float, solarise: float) -> ImageOp:
        return Compose(
            Crop(size, scale=(min_crop_scale, 1.0)),
            Flip(),
            ColorJitter(0.4, 0.4, 0.2, 0.1, prob=0.8),
            Grayscale(prob=gray_prob),
            *_build_blur(size, blur),
            Solarize(prob=solarise),
        )

    return ImageViews((pipeline(blur=1.0, solarise=0.0), pipeline(blur=0.1, solarise=0.2)))


def swav_views(
    size: int, small_crop_size: int | None = None, small_crops: int = 6, color_strength: float | None = None, gray_prob: float = 0.2
) -> ImageViews:
    """SwAV's multi-crop (Caron et al. 2020): two crops of `size` pixels and `smalls` of few pixels from small windows.

    The paper: 2 of 224 pixels and 6 of 96; by default `small` is 3/7 of `size`, as there. Views 0 and 1 are the large ones.
    """
    filters = _build_simclr_filters(size, color_strength, gray_prob)
    large = Compose(Crop(size, scale=(0.14, 1.0)), *filters)
    little = Compose(Crop(small_crop_size or round(size * 3 / 7), scale=(0.05, 0.14)), *filters)
    return ImageViews((large,) * 2 + (little,) * small_crops)


def handwriting_views(size: int, num_views: int = 2) -> ImageViews:
    """Small grey images whose mirror image means something else: crop, slight rotation and shear, elastic warp (Simard et al. 2003)."""
    pipeline = Compose(
        Crop(size, scale=(0.6, 1.0)),
        Rotate(15.0),
        Shear(10.0),
        Elastic(std_pixels=size / 20),
    )
    return ImageViews.repeat(pipeline, num_views)


def _build_simclr_filters(size: int, color_strength: float | None, gray_prob: float = 0.2) -> tuple[ImageOp, ...]:
    s = (0.5 if size <= SMALL_IMAGE_SIZE else 1.0) if color_strength is None else color_strength
    return (Flip(), ColorJitter(0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s, prob=0.8), Grayscale(prob=gray_prob), *_build_blur(size, 0.5))


def _build_blur(size: int, prob: float) -> tuple[ImageOp, ...]:
    """Blur for images large enough to be recognised afterwards."""
    return (GaussianBlur(prob=prob),) if size > SMALL_IMAGE_SIZE else ()
