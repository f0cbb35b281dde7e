"""What to learn from: `open_data(spec)` turns a name, a path, an array or a dataset into a training and a test split."""

from nearfar.data.accept import adapted, as_images, read_all
from nearfar.data.images import Images
from nearfar.data.inputs import Inputs, inputs_for
from nearfar.data.open import open_data
from nearfar.data.opentext import open_texts
from nearfar.data.split import Splits
from nearfar.data.text import Texts
from nearfar.data.tokens import Tokenizer

__all__ = [
    "Images", "Inputs", "Splits", "Texts", "Tokenizer", "adapted", "as_images", "inputs_for", "open_data", "open_texts", "read_all",
]  # fmt: skip
