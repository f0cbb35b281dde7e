"""Masked language modelling, as an auxiliary: name the tokens that were hidden."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_equal_shapes, check_float_tensors, check_masks
from nearfar.losses.softmax import cross_entropy


def mlm(logits: Float[Tensor, "n t c"], tokens: Int[Tensor, "n t"], is_masked: Bool[Tensor, "n t"]) -> Float[Tensor, ""]:
    r"""\[ \mathcal L = -\frac{1}{|H|} \sum_{(i, t) \in H} \log \operatorname{softmax}(l_{it})_{x_{it}} \]

    over the hidden places H, with x the tokens as they were before hiding. 0 if nothing was hidden.

    Relations: SimCSE adds lambda times this: better transfer, worse similarity.

    Reference: Devlin et al., BERT, NAACL 2019.
    """
    check_float_tensors(3, logits=logits)
    check_masks(logits.shape[:2], is_masked=is_masked)
    check_equal_shapes(tokens=tokens, is_masked=is_masked)
    return cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~is_masked, -1).flatten())
