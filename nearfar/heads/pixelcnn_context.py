"""Context network over a grid of features.

Each context depends on the rows above and on its own row. It does not depend on the rows below.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class PixelCNNContext(nn.Module):
    r"""Context \(c_{ij}\) of \(z_{i'j'}\) in the rows \(i' \le i\), as in PixelCNN.

    It consists of `depth` residual convolutions. Each of them sees a row and the row above, so the context
    reaches `depth` rows up and `depth` columns to both sides.

    Reference: van den Oord et al., Conditional Image Generation with PixelCNN Decoders, arXiv:1606.05328.
    """

    def __init__(self, width: int, dim: int, depth: int = 5):
        super().__init__()
        self.dim = dim
        self.inward = nn.Conv2d(width, dim, 1)
        self.layers = nn.ModuleList(nn.Conv2d(dim, dim, (2, 3)) for _ in range(depth))

    def forward(self, z: Float[Tensor, "n g g2 w"]) -> Float[Tensor, "n g g2 d"]:
        x = self.inward(z.permute(0, 3, 1, 2))
        for layer in self.layers:
            x = x + layer(F.pad(F.relu(x), (1, 1, 1, 0)))
        return x.permute(0, 2, 3, 1)
