"""Datasets for training and evaluation.

`load_images(spec)` turns a name, a path, an array or a dataset into a training and a test split.
"""

from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.images.dataset import Images
from nearfar.data.images.image_adapter import adapt_images, as_images, load_all_images
from nearfar.data.images.load import load_images
from nearfar.data.text.dataset import Texts
from nearfar.data.text.load import load_texts

__all__ = [
    "Images",
    "Inputs",
    "Splits",
    "Texts",
    "Tokenizer",
    "adapt_images",
    "as_images",
    "load_all_images",
    "load_images",
    "load_texts",
]  # fmt: skip
