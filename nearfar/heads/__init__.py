"""Heads: modules that transform representations before the loss."""

from nearfar.heads.projection import HeadNorm, Normalize, mlp
from nearfar.heads.split_batch_norm import split_batch_norm

__all__ = ["HeadNorm", "Normalize", "mlp", "split_batch_norm"]
