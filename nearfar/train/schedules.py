"""Learning rate schedules.

The learning rate is a function of progress only, so a resumed run needs no scheduler state.
"""

from __future__ import annotations

import math


def compute_learning_rate(progress: float, peak_lr: float, schedule: str, warmup_ratio: float) -> float:
    r"""Compute the learning rate at a progress between 0 and 1.

    \[ \eta = \eta_{\max}\, p / w \;\text{ for } p < w, \qquad
       \eta = \eta_{\max}\, \tfrac12 (1 + \cos \pi \tfrac{p - w}{1 - w}) \;\text{ else} \]

    Here \(p\) is the progress at the *middle* of the step and \(w\) the warm-up ratio. With the middle of the
    step, neither the first nor the last step has a rate of zero.

    Args:
        progress: progress at the middle of the step.
        peak_lr: learning rate after the warm-up.
        schedule: "constant" keeps the rate after the warm-up. Any other value lowers it to zero along half a
            cosine.
        warmup_ratio: share of the training in which the rate rises linearly.
    """
    if progress < warmup_ratio:
        return peak_lr * progress / warmup_ratio
    if schedule == "constant":
        return peak_lr
    return peak_lr * 0.5 * (1 + math.cos(math.pi * (progress - warmup_ratio) / (1 - warmup_ratio)))
