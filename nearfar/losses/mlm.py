"""Masked language modelling, as an auxiliary: name the tokens that were hidden."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_flags, check_float, check_shapes
from nearfar.losses.softmax import cross_entropy


def mlm(logits: Float[Tensor, "n t c"], tokens: Int[Tensor, "n t"], hidden: Bool[Tensor, "n t"]) -> Float[Tensor, ""]:
    r"""\[ \mathcal L = -\frac{1}{|H|} \sum_{(i, t) \in H} \log \operatorname{softmax}(l_{it})_{x_{it}} \]

    over the hidden places H, with x the tokens as they were before hiding. 0 if nothing was hidden.

    Relations: SimCSE adds lambda times this: better transfer, worse similarity.

    Reference: Devlin et al., BERT, NAACL 2019.
    """
    check_float(3, logits=logits)
    check_flags(logits.shape[:2], hidden=hidden)
    check_shapes(tokens=tokens, hidden=hidden)
    return cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~hidden, -1).flatten())
