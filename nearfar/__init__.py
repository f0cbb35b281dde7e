"""nearfar: contrastive representation learning.

Pull similar samples together, push others apart.

    run = nearfar.fit("simclr", data="digits", steps=300)      train
    nearfar.load("RUN").encode(images)                         use
    info_nce(pairs(a, b) / tau).mean()                         the losses alone, in any training loop

Names are imported when first used. `import nearfar` itself is fast and does not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from nearfar.version import __version__

_WHERE = {
    "fit": "nearfar.api.fit",
    "load": "nearfar.api.load",
    "resume": "nearfar.api.fit",
    "evaluate_model": "nearfar.api.evaluate",
    "embed": "nearfar.api.embed",
    "compare_runs": "nearfar.api.compare",
    "diagnose": "nearfar.api.diagnose",
    "check": "nearfar.api.check",
    "choose": "nearfar.api.choose",
    "index_data": "nearfar.api.search",
    "open_index": "nearfar.index",
    "search": "nearfar.api.search",
    "Hook": "nearfar.train.training_loop",
    "Scores": "nearfar.scores",
    "Model": "nearfar.train.model",
    **dict.fromkeys(["MemoryBank", "Card", "Ema", "RandomKey", "RuntimeConfig", "NearfarError", "Net", "Plan", "Queue"], "nearfar.core"),
    **dict.fromkeys(["Recipe", "Rows", "TrainConfig", "Similarity", "UsageError"], "nearfar.core"),
}
__all__ = ["__version__", *_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
