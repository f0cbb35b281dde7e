"""The learning rate as a function of progress: pure, so a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def learning_rate(progress: float, peak: float, schedule: str, warmup: float) -> float:
    r"""Rises linearly to `peak` over the share `warmup`, then stays ("constant") or follows half a cosine to zero.

    With \(p\) the progress at the *middle* of the step (so that neither the first nor the last step is lost to a rate of
    zero) and \(w\) the warm-up share: \(\eta = \eta_{\max}\, p / w\) for \(p < w\), then
    \(\eta_{\max}\, \tfrac12 (1 + \cos \pi \tfrac{p - w}{1 - w})\).
    """
    if progress < warmup:
        return peak * progress / warmup
    if schedule == "constant":
        return peak
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
