"""Context networks: features along time that depend on the features around them.

`GRUContext` uses the past only. `MaskedTransformer` uses all frames but the hidden ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class GRUContext(nn.Module):
    r"""Recurrent context \(c_t\) of \(z_{\le t}\).

    It does not depend on the future.
    """

    def __init__(self, width: int, dim: int):
        super().__init__()
        self.dim = dim
        self.gru = nn.GRU(width, dim, batch_first=True)

    def forward(self, z: Float[Tensor, "n t w"]) -> Float[Tensor, "n t d"]:
        return self.gru(z)[0]


class MaskedTransformer(nn.Module):
    """Masked transformer over frames.

    Each frame attends to all others, in both directions. One learned vector replaces the hidden
    frames. A convolution over the neighborhood encodes the positions. It encodes distances but no absolute
    positions, so clips may be longer than those of the training.

    Reference: Baevski et al., wav2vec 2.0, arXiv:2006.11477.
    """

    def __init__(self, width: int, dim: int, depth: int = 2, num_heads: int = 4, kernel_size: int = 15):
        super().__init__()
        self.dim = dim
        self.hidden = nn.Parameter(torch.empty(width).uniform_())
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, dim))
        self.place = nn.Sequential(nn.Conv1d(dim, dim, kernel_size, padding=kernel_size // 2, groups=num_heads), nn.GELU())
        layer = nn.TransformerEncoderLayer(dim, num_heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)

    def forward(
        self, z: Float[Tensor, "n t w"], frame_mask: Bool[Tensor, "n t"], hidden_mask: Bool[Tensor, "n t"] | None = None
    ) -> Float[Tensor, "n t d"]:
        """Compute the context of each frame.

        Args:
            z: frames, (n, t, w).
            frame_mask: True for each frame that counts, (n, t).
            hidden_mask: True for each of those frames that is hidden from the transformer, (n, t).

        Returns:
            The contexts, (n, t, dim).
        """
        if hidden_mask is not None:
            z = torch.where(hidden_mask[:, :, None], self.hidden.to(z.dtype), z)
        x = self.project(z) * frame_mask[:, :, None]
        x = x + self.place(x.transpose(1, 2)).transpose(1, 2)
        return self.layers(x, src_key_padding_mask=~frame_mask)
