"""Masked language modeling as an auxiliary loss: prediction of the masked tokens."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_equal_shapes, check_float_tensors, check_masks
from nearfar.losses.softmax import cross_entropy


def mlm(logits: Float[Tensor, "n t c"], tokens: Int[Tensor, "n t"], is_masked: Bool[Tensor, "n t"]) -> Float[Tensor, ""]:
    r"""Compute the mean cross-entropy of the masked tokens.

    \[ \mathcal L = -\frac{1}{|H|} \sum_{(i, t) \in H} \log \operatorname{softmax}(l_{it})_{x_{it}} \]

    H is the set of masked places, and x are the tokens before masking. The loss is 0 if no token is masked.

    Args:
        logits: Logits of the c tokens at each place.
        tokens: Original tokens.
        is_masked: Mask of the places in H.

    Relations: SimCSE adds lambda times this loss. Transfer improves, and similarity becomes worse.

    Reference: Devlin et al., BERT, NAACL 2019.
    """
    check_float_tensors(3, logits=logits)
    check_masks(logits.shape[:2], is_masked=is_masked)
    check_equal_shapes(tokens=tokens, is_masked=is_masked)
    return cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~is_masked, -1).flatten())
