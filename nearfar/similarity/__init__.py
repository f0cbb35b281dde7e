"""The similarity distributions: what counts as alike. Here: views of an image, by operations drawn for each slot."""

from nearfar.similarity.augment import ImageViews
from nearfar.similarity.color import ColorJitter, Grayscale, Solarize
from nearfar.similarity.compose import Compose
from nearfar.similarity.geometric_ops import Crop, Elastic, Flip, PadCrop, Perspective, Rotate, Shear
from nearfar.similarity.image_op import Filter, ImageOp
from nearfar.similarity.texture import Cutout, GaussianBlur, GaussianNoise, SobelEdges
from nearfar.similarity.view_presets import (
    byol_views,
    choose_views,
    handwriting_views,
    moco_v1_views,
    moco_v2_views,
    simclr_views,
    swav_views,
)
from nearfar.similarity.warp import GeometricOp

__all__ = [
    "ColorJitter",
    "Compose",
    "Crop",
    "Cutout",
    "Elastic",
    "Filter",
    "Flip",
    "GaussianBlur",
    "GaussianNoise",
    "GeometricOp",
    "Grayscale",
    "ImageOp",
    "ImageViews",
    "PadCrop",
    "Perspective",
    "Rotate",
    "Shear",
    "SobelEdges",
    "Solarize",
    "byol_views",
    "choose_views",
    "handwriting_views",
    "moco_v1_views",
    "moco_v2_views",
    "simclr_views",
    "swav_views",
]  # fmt: skip
