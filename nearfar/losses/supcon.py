"""The supervised contrastive loss: everything of one's class is a positive."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores


def supcon(S: Scores) -> Float[Tensor, " n"]:
    r"""\(\mathcal L_{\text{out}}\): the mean over the positives stands outside the logarithm,

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_{j \ne i} e^{s_{ij}}} \]

    where \(P_i\) are all *other* rows of the label of i, further views of the same image included, so that
    \(|P_i|\) is the class's number of rows less one.

    Shapes: `supcon(labelled(z, y) / tau)` gives `(n,)`, 0 for rows that are alone in their class. These zeros count in
    `.mean()`; `mean_over_rows_with_positives` leaves such rows out, as pytorch-metric-learning does.

    Relations: `info_nce` on a labelled table, under the name it is known by. Not minimal at 0: with |P| positives
    at best \(\log |P|\). `info_nce_in` is the other reading (\(\mathcal L_{\text{in}}\) up to a constant), which
    the paper finds worse.

    Reference: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020.
    """
    return info_nce(S)
