r"""ST-DIM: contrast each location of the next frame, given the current frame.

Claim: the information shared by consecutive frames and by the locations of a frame is the state of a game,
including its small objects. A linear probe predicts the variables of the game's memory better from these
features than from generative models of the frames.

$$\mathcal{L}_{GL} = \sum_{m, n} -\log \frac{\exp\big(g_{m,n}(x_t, x_{t+1})\big)}
{\sum_{x_{t^*} \in X_{next}} \exp\big(g_{m,n}(x_t, x_{t^*})\big)},
\qquad g_{m,n}(x_t, x_{t+1}) = \phi(x_t)^\top W_g\, \phi_{m,n}(x_{t+1})$$

$$\mathcal{L}_{LL} = \sum_{m, n} -\log \frac{\exp\big(f_{m,n}(x_t, x_{t+1})\big)}
{\sum_{x_{t^*} \in X_{next}} \exp\big(f_{m,n}(x_t, x_{t^*})\big)},
\qquad f_{m,n}(x_t, x_{t+1}) = \phi_{m,n}(x_t)^\top W_l\, \phi_{m,n}(x_{t+1})$$

The local-local and the global-local loss are means over the locations (m, n) and over the batch, as in the
authors' code. Their sum is the loss.

Shapes: frames (n, c, h, w) -> global feature phi (n, dim), map (n, locations, width); two tables (locations,
n, n). The negatives of a row are the same location in the other next frames of the batch.

Requirements: frames in the order of time, in episodes. No augmentation. Pairs are drawn at random, so that
the negatives come from other time steps. Static content is the same in all frames and is not learned.

Relations: Deep InfoMax across time: `infograph` and `dgi` compare a whole with its parts at one time. CPC
(`cpc-audio`) predicts several steps ahead from a recurrent context. ST-DIM predicts one step, from one frame,
at every location. Without the local-local term a few easy features suffice and small objects are lost.

Reference: Anand, Racah, Ozair, Bengio, Cote & Hjelm, "Unsupervised State Representation Learning in Atari",
NeurIPS 2019, arXiv:1906.08226.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.similarity.next_frame import NextFramePairs


@dataclass(frozen=True)
class STDIM(Recipe):
    """Spatiotemporal Deep InfoMax."""

    card = Card(
        title="ST-DIM",
        paper="arXiv:1906.08226",
        year=2019,
        modality="frames",
        similarity="context-instance, sequential coherence",
        query="global feature of a frame, and the feature of each of its places",
        positive="the same place of the next frame",
        negative="the same place of the batch's other next frames",
        encoder="strided convolutions, end to end",
        head="none",
        score="bilinear, one map for global and one for local features",
        loss="InfoNCE, global-local plus local-local, mean over places",
        equation=r"\mathcal{L} = \frac{1}{MN} \sum_{m,n} -\log \frac{e^{g_{m,n}(x_t, x_{t+1})}}{\sum_{t^*} e^{g_{m,n}(x_t, x_{t^*})}}"
        r" - \log \frac{e^{f_{m,n}(x_t, x_{t+1})}}{\sum_{t^*} e^{f_{m,n}(x_t, x_{t^*})}}",
        family="mutual information",
        similarity_type=("context-instance", "sequential coherence"),
        head_type=("none",),
    )

    def similarity(self, net: Net) -> NextFramePairs:
        return NextFramePairs()

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(
            encoder=encoder,
            W_g=_create_bilinear_weight(encoder.dim, encoder.width),
            W_l=_create_bilinear_weight(encoder.width, encoder.width),
        )

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        phi, local = net.encoder.encode_with_map(x["v0"])
        _, following = net.encoder.encode_with_map(x["v1"])
        return {"global": phi, "local": local, "next": following}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        following = z["next"].transpose(0, 1)
        places = following.shape[0]
        global_local = info_nce_per_place((z["global"] @ net.W_g).expand(places, -1, -1), following)
        local_local = info_nce_per_place(z["local"].transpose(0, 1) @ net.W_l, following)
        return {"loss": global_local + local_local, "global_local": global_local, "local_local": local_local}


def info_nce_per_place(predicted: Float[Tensor, "p n d"], following: Float[Tensor, "p n d"]) -> Float[Tensor, ""]:
    """Compute InfoNCE at each of p locations and return the mean over locations and rows.

    The positive of row i is column i; the other n - 1 columns of the location are its negatives.

    Relations: the mean over locations of
    `info_nce(Scores.from_pairs(predicted[p], following[p], score=dot))`, with one batched matrix product for
    all tables.
    """
    scores = predicted @ following.mT
    target = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape[:2])
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def _create_bilinear_weight(in_dim: int, out_dim: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_dim, out_dim)))


paper = STDIM(), TrainConfig(
    data="pong.games", encoder="nature", batch_size=64, epochs=100, lr=3e-4, weight_decay=0.0, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "Pong, probe F1": (0.81, "arXiv:1906.08226, table 2, unverified"),
    "Breakout, probe F1": (0.88, "arXiv:1906.08226, table 2, unverified"),
    "Ms. Pac-Man, probe F1": (0.72, "arXiv:1906.08226, table 2, unverified"),
    "mean over 22 games, probe F1": (0.72, "arXiv:1906.08226, table 2, unverified"),
}

tiny = STDIM(), TrainConfig(data="bounce", encoder="nature-small", batch_size=64, steps=200, lr=1e-3, weight_decay=0.0)
