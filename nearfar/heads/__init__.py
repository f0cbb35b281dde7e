"""Transform heads between the representation and the loss."""

from nearfar.heads.projection import HeadNorm, Normalise, mlp
from nearfar.heads.split_batch_norm import split_batch_norm

__all__ = ["HeadNorm", "Normalise", "mlp", "split_batch_norm"]
