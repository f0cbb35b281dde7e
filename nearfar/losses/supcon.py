"""Supervised contrastive loss: all samples of the same class are positives."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores


def supcon(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute the supervised contrastive loss of each row.

    This is \(\mathcal L_{\text{out}}\): the mean over the positives is outside the logarithm,

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_{j \ne i} e^{s_{ij}}} \]

    \(P_i\) are all *other* rows with the label of row i, including further views of the same image. So
    \(|P_i|\) is the number of rows of the class minus one.

    Shapes: `supcon(Scores.from_labels(z, labels) / temperature)` gives `(n,)`. Rows alone in their class have
    loss 0, and `.mean()` counts these zeros. `mean_over_rows_with_positives` leaves such rows out, as
    pytorch-metric-learning does.

    Relations: `info_nce` on a labeled table, under its common name. The minimum is not 0: with |P| positives
    it is \(\log |P|\). `mil_nce` is the other version (\(\mathcal L_{\text{in}}\) up to a constant), which
    the paper finds worse.

    Reference: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020.
    """
    return info_nce(S)
