"""The similarity distributions: what counts as alike. Here: views of an image, by operations drawn for each slot."""

from nearfar.similarity.augment import Augment
from nearfar.similarity.color import Grey, Jitter, Solarise
from nearfar.similarity.compose import Compose
from nearfar.similarity.image_op import Filter, Op
from nearfar.similarity.motions import Crop, Elastic, Flip, PadCrop, Perspective, Rotate, Shear
from nearfar.similarity.texture import Blur, Cutout, Noise, Sobel
from nearfar.similarity.view_presets import (
    byol_views,
    handwriting_views,
    moco_v1_views,
    moco_v2_views,
    simclr_views,
    swav_views,
    views_for,
)
from nearfar.similarity.warp import Motion

__all__ = [
    "Augment", "Blur", "Compose", "Crop", "Cutout", "Elastic", "Filter", "Flip", "Grey", "Jitter", "Motion", "Noise", "Op",
    "PadCrop", "Perspective", "Rotate", "Shear", "Sobel", "Solarise", "byol_views", "handwriting_views",
    "moco_v1_views", "moco_v2_views", "simclr_views", "swav_views", "views_for",
]  # fmt: skip
