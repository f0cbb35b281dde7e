"""View presets of published methods, with their published settings.

Each line is one operation, in the order of the paper. There is one deviation: flips directly follow the crop,
so that both are one interpolation. A flip commutes with every filter that follows, so the distribution of the
views is the same.
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
"""Largest side of a small image in pixels.

Small images get no blur and half of SimCLR's color distortion, as is usual for CIFAR.
"""


def choose_views(sizes: Sizes, build_photo_views: Callable[[int], ImageViews]) -> ImageViews:
    """Choose views for the data.

    Small gray images get `handwriting_views`. All other images get the views of the method, designed for
    photographs.

    Args:
        sizes: sizes of the dataset, with "channels" and "size".
        build_photo_views: function from the image size to the views of the method.
    """
    if sizes["channels"] == 1 and sizes["size"] <= SMALL_IMAGE_SIZE:
        return handwriting_views(sizes["size"])
    return build_photo_views(sizes["size"])


def simclr_views(
    size: int, color_strength: float | None = None, num_views: int = 2, gray_prob: float = 0.2, min_crop_scale: float = 0.08
) -> ImageViews:
    """Build the views of SimCLR (Chen et al. 2020, appendix A).

    The operations are crop, flip, color distortion, random grayscale and blur.

    Args:
        size: side of a view in pixels.
        color_strength: strength of the color distortion. Default: 1, as on ImageNet; for small images 0.5, as
            on CIFAR-10 (appendix B.9).
        num_views: number of views.
        gray_prob: probability of grayscale.
        min_crop_scale: smallest share of the image area that a view shows.
    """
    return ImageViews.repeat(
        Compose(Crop(size, scale=(min_crop_scale, 1.0)), *_build_simclr_filters(size, color_strength, gray_prob)), num_views
    )


def moco_v1_views(size: int, num_views: int = 2) -> ImageViews:
    """Build the views of MoCo v1 (He et al. 2020).

    They are those of instance discrimination (Wu et al. 2018): strong jitter on every view, no blur.
    """
    return ImageViews.repeat(Compose(Crop(size, scale=(0.2, 1.0)), Flip(), Grayscale(prob=0.2), ColorJitter(0.4, 0.4, 0.4, 0.4)), num_views)


def moco_v2_views(size: int, num_views: int = 2, gray_prob: float = 0.2) -> ImageViews:
    """Build the views of MoCo v2 (Chen et al. 2020).

    The operations are those of SimCLR with weaker jitter and larger crops. `gray_prob` is the probability of
    grayscale.
    """
    pipeline = Compose(
        Crop(size, scale=(0.2, 1.0)),
        Flip(),
        ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8),
        Grayscale(prob=gray_prob),
        *_build_blur(size, 0.5),
    )
    return ImageViews.repeat(pipeline, num_views)


def byol_views(size: int, gray_prob: float = 0.2, min_crop_scale: float = 0.08) -> ImageViews:
    """Build the views of BYOL and Barlow Twins.

    Reference: Grill et al. 2020, appendix B.

    The two views differ in the probabilities of blur and solarization.
    """

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
    """Build the multi-crop views of SwAV (Caron et al. 2020).

    There are two large crops, views 0 and 1, and `small_crops` small crops of small windows. The paper uses 2
    crops of 224 pixels and 6 of 96.

    Args:
        size: side of a large crop in pixels.
        small_crop_size: side of a small crop in pixels. Default: 3/7 of `size`, as in the paper.
        small_crops: number of small crops.
        color_strength: strength of the color distortion, as in `simclr_views`.
        gray_prob: probability of grayscale.
    """
    filters = _build_simclr_filters(size, color_strength, gray_prob)
    large = Compose(Crop(size, scale=(0.14, 1.0)), *filters)
    little = Compose(Crop(small_crop_size or round(size * 3 / 7), scale=(0.05, 0.14)), *filters)
    return ImageViews((large,) * 2 + (little,) * small_crops)


def handwriting_views(size: int, num_views: int = 2) -> ImageViews:
    """Build views of small gray images whose mirror image has another meaning.

    The operations are crop, slight rotation and shear, and elastic warp (Simard et al. 2003).
    """
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
    """Build a blur for images that are large enough to stay recognizable."""
    return (GaussianBlur(prob=prob),) if size > SMALL_IMAGE_SIZE else ()
