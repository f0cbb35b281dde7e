r"""Deep InfoMax: match each image with its own local features, against those of other images.

Claim: maximizing the mutual information between input and representation is not enough. Deep InfoMax
maximizes it between the representation and every *location* of the input: the information shared by all
locations is the content of the image, and the information in a single location is noise.

$$\max_{\psi, \omega} \frac1{M^2} \sum_{i=1}^{M^2} \hat I_\omega\big(C_\psi^{(i)}(X);\, E_\psi(X)\big),
\qquad E_\psi = f_\psi \circ C_\psi$$

The mutual information has one of three estimators. x' is another image and sp the softplus:

$$\hat I^{JSD} = \mathbb{E}_{\mathbb P}\big[-\operatorname{sp}(-T(x, E(x)))\big]
- \mathbb{E}_{\mathbb P \times \tilde{\mathbb P}}\big[\operatorname{sp}(T(x', E(x)))\big],
\qquad \hat I^{DV} = \mathbb{E}_{\mathbb P}[T(x, E(x))] - \log \mathbb{E}_{\mathbb P \times \tilde{\mathbb P}}\big[e^{T(x', E(x))}\big]$$

$$\hat I^{infoNCE} = \mathbb{E}_{\mathbb P}\Big[T(x, E(x))
- \mathbb{E}_{\tilde{\mathbb P}}\big[\log \sum_{x'} e^{T(x', E(x))}\big]\Big]$$

Shapes: images (n, c, h, w) -> a map of the encoder, local (n, M², dim) after a head, and its representation,
global (n, dim) after another head. T is their dot product, a table of n rows and n M² columns. In InfoNCE the
locations of an image do not compete with each other.

Requirements: a convolutional encoder. No augmentation: the locations are the views. Many negatives for
InfoNCE; JSD needs few. Images whose locations are parts of an object: on the 8 x 8 pixels of the digits Deep
InfoMax scores below raw pixels, on photographs it does not.

Relations: `infograph` and `dgi` on graphs, `st-dim` across time, `amdim` across augmented views and several
maps. This is DIM(L). The paper's global term DIM(G) is left out, and so is the adversary that matches E(x) to
a prior (weight 0.1 in the paper).

Reference: Hjelm, Fedorov, Lavoie-Marchildon, Grewal, Bachman, Trischler & Bengio, "Learning Deep
Representations by Mutual Information Estimation and Maximization", ICLR 2019, arXiv:1808.06670.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.feature_maps import encode_with_maps, get_map_channels
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import dv_bound, jsd_bound, local_global_info_nce
from nearfar.scores import Scores
from nearfar.similarity import Compose, ImageViews


class Critic(nn.Module):
    """Head of one side of T: a hidden layer with a linear skip connection.

    `layer_norm` adds a layer norm at the end. The paper has one after the head of the locations.
    """

    def __init__(self, in_dim: int, dim: int, norm: HeadNorm, layer_norm: bool):
        super().__init__()
        self.steep, self.flat = mlp(in_dim, dim, dim, norm=norm), nn.Linear(in_dim, dim)
        self.last = nn.LayerNorm(dim) if layer_norm else nn.Identity()

    def forward(self, h: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        return self.last(self.steep(h) + self.flat(h))


@dataclass(frozen=True)
class DIM(Recipe):
    """Deep InfoMax with the local objective."""

    card = Card(
        title="Deep InfoMax",
        paper="arXiv:1808.06670",
        year=2019,
        modality="image",
        similarity="context-instance",
        query="representation of an image",
        positive="the places of its own feature map",
        negative="the places of the batch's other images",
        encoder="ConvNet, end to end",
        head="a hidden layer beside a linear map, for the whole and for the places",
        score="dot product",
        loss="InfoNCE, Jensen-Shannon or Donsker-Varadhan bound",
        equation=r"\max_{\psi, \omega} \frac1{M^2} \sum_{i=1}^{M^2} \hat I_\omega\big(C_\psi^{(i)}(X);\, E_\psi(X)\big)",
        family="mutual information",
        similarity_type=("context-instance",),
        head_type=("projection", "contextualization"),
    )

    limits = {"local_layer": (-8.0, -1.0)}  # noqa: RUF012

    dim: int = 128
    """Dimension of the space where global and local features are compared."""
    estimator: Literal["infonce", "jsd", "dv"] = "infonce"
    """Estimator of mutual information: infonce, jsd (Jensen-Shannon) or dv (Donsker-Varadhan)."""
    local_layer: int = -2
    """Feature map of the locations. -1 is the last map, whose average is the representation; -2 is the one
    before."""
    norm: HeadNorm = "batch"
    """Normalization in the heads."""

    def similarity(self, net: Net) -> ImageViews:
        return ImageViews((Compose(),))

    def build(self, sizes: Sizes, encoder) -> Net:
        places = get_map_channels(encoder)[self.local_layer]
        whole = Critic(encoder.dim, self.dim, self.norm, layer_norm=False)
        return Net(encoder=encoder, whole=whole, places=Critic(places, self.dim, self.norm, layer_norm=True))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        whole, maps = encode_with_maps(net.encoder, x["v0"])
        places = maps[self.local_layer]
        return {"global": net.whole(whole), "local": net.places(places.flatten(0, 1)).unflatten(0, places.shape[:2])}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        if self.estimator == "infonce":
            return local_global_info_nce(z["global"], z["local"]).mean()
        bound = {"jsd": jsd_bound, "dv": dv_bound}[self.estimator]
        n, places = z["local"].shape[:2]
        image = torch.arange(n, device=z["local"].device)
        return -bound(Scores(z["global"], z["local"].flatten(0, 1), image, image.repeat_interleave(places)))


paper = DIM(dim=2048), TrainConfig(
    data="cifar10", encoder="convnet", batch_size=64, epochs=1000, lr=1e-4, weight_decay=0.0, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = DIM(estimator="jsd"), TrainConfig(data="digits", steps=300, batch_size=128, lr=1e-3)
