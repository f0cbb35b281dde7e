"""What to learn from: `open_data(spec)` turns a name, a path, an array or a dataset into a training and a test split."""

from nearfar.data.accept import adapted, as_images, read_all
from nearfar.data.images import Images
from nearfar.data.open import open_data
from nearfar.data.split import Splits

__all__ = ["Images", "Splits", "adapted", "as_images", "open_data", "read_all"]
