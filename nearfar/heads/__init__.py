"""Transform heads between the representation and the loss."""

from nearfar.heads.projection import HeadNorm, Normalise, mlp

__all__ = ["HeadNorm", "Normalise", "mlp"]
