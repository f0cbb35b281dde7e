"""nearfar: contrastive representation learning as one system. Pull the alike near, push the rest far.

    run = nearfar.fit("simclr", data="digits", steps=300)      train
    nearfar.load("RUN").encode(images)                         use
    info_nce(pairs(a, b) / tau).mean()                         the losses alone, in anybody's loop

Names are imported when first used: `import nearfar` itself costs nothing, not even torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "fit": "nearfar.api.fit",
    "load": "nearfar.api.fit",
    "resume": "nearfar.api.fit",
    "evaluate_run": "nearfar.api.evaluate",
    "compare_runs": "nearfar.api.compare",
    "diagnose": "nearfar.api.diagnose",
    "check": "nearfar.api.check",
    "choose": "nearfar.api.choose",
    "index_data": "nearfar.index",
    "open_index": "nearfar.index",
    "search": "nearfar.index",
    "Hook": "nearfar.train.fit",
    "pairs": "nearfar.scores",
    "views": "nearfar.scores",
    "matched": "nearfar.scores",
    "labelled": "nearfar.scores",
    "listed": "nearfar.scores",
    "Scores": "nearfar.scores",
    **dict.fromkeys(["Bank", "Card", "Ema", "Key", "Machine", "NearfarError", "Net", "Plan", "Queue"], "nearfar.core"),
    **dict.fromkeys(["Recipe", "Rows", "Run", "Similarity", "UsageError"], "nearfar.core"),
}
__all__ = ["__version__", *_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
