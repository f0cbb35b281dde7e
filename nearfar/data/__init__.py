"""What to learn from: `open_data(spec)` turns a name, a path, an array or a dataset into a training and a test split."""

from nearfar.data.common.inputs import Inputs, inputs_for
from nearfar.data.common.splits import Splits
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.images.accept import adapted, as_images, read_all
from nearfar.data.images.dataset import Images
from nearfar.data.images.load import open_data
from nearfar.data.text.dataset import Texts
from nearfar.data.text.load import open_texts

__all__ = [
    "Images", "Inputs", "Splits", "Texts", "Tokenizer", "adapted", "as_images", "inputs_for", "open_data", "open_texts", "read_all",
]  # fmt: skip
