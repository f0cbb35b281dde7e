"""Transform heads between the representation and the loss."""

from nearfar.heads.batchnorm import split_batch_norm
from nearfar.heads.projection import HeadNorm, Normalise, mlp

__all__ = ["HeadNorm", "Normalise", "mlp", "split_batch_norm"]
