"""The learning rate as a function of progress: pure, so a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def compute_learning_rate(progress: float, peak_lr: float, schedule: str, warmup_ratio: float) -> float:
    r"""Rises linearly to `peak` over the share `warmup`, then stays ("constant") or follows half a cosine to zero.

    With \(p\) the progress at the *middle* of the step (so that neither the first nor the last step is lost to a rate of
    zero) and \(w\) the warm-up share: \(\eta = \eta_{\max}\, p / w\) for \(p < w\), then
    \(\eta_{\max}\, \tfrac12 (1 + \cos \pi \tfrac{p - w}{1 - w})\).
    """
    if progress < warmup_ratio:
        return peak_lr * progress / warmup_ratio
    if schedule == "constant":
        return peak_lr
    return peak_lr * 0.5 * (1 + math.cos(math.pi * (progress - warmup_ratio) / (1 - warmup_ratio)))
