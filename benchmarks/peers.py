"""The same losses by others: plain torch as it is usually written, and the packages a user would take instead.

`implementations(loss)` gives name -> f(a, b, y), a scalar; "plain torch" comes first and is what ratios are taken against. A package
that is not installed, or needs torchvision for its import, is written out from its source and called "formula of …".
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses import clip, info_nce, supcon
from nearfar.scores import Scores, cosine, unit_dot

TAU = 0.07
LOSSES = ("InfoNCE", "NT-Xent", "SupCon", "CLIP")
LARGEST = {("NT-Xent", "pytorch-metric-learning"): 256}
"""Beyond this batch there is not enough memory."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def implementations(loss: str, normalised: bool = False) -> dict[str, Loss]:
    """`normalised`: the vectors are of length 1 already, and nobody normalises them again (unless the package cannot be told)."""
    unit = (lambda z: z) if normalised else F.normalize
    score = unit_dot if normalised else cosine
    ours: dict[str, Loss] = {
        "InfoNCE": lambda a, b, y: info_nce(Scores.from_pairs(a, b, score=score) / TAU).mean(),
        "NT-Xent": lambda a, b, y: info_nce(Scores.from_views(a, b, score=score) / TAU).mean(),
        "SupCon": lambda a, b, y: supcon(Scores.from_labels(a, y, score=score) / TAU).mean(),
        "CLIP": lambda a, b, y: clip(a, b, 1 / TAU, score=score),
    }
    plain = {"InfoNCE": _plain_info_nce, "NT-Xent": _plain_nt_xent, "SupCon": _plain_supcon, "CLIP": _plain_clip}[loss]
    return {"plain torch": lambda a, b, y: plain(unit(a), unit(b), y), "nearfar": ours[loss], **_packages(loss, unit)}


def compiled(loss: str) -> dict[str, Loss]:
    """torch.compile of plain torch, for vectors of length 1, with nothing left of what was compiled before."""
    torch.compiler.reset()
    return {"torch.compile": torch.compile(implementations(loss, normalised=True)["plain torch"], dynamic=False)}


def _logits(a: Tensor, b: Tensor) -> Tensor:
    """In single precision at least, as everybody learns to do."""
    scores = a @ b.T
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / TAU


def _plain_info_nce(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(_logits(a, b), torch.arange(len(a), device=a.device))


def _plain_clip(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    logits, target = _logits(a, b), torch.arange(len(a), device=a.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def _plain_nt_xent(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    z = torch.cat([a, b])
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    logits = _logits(z, z).masked_fill(itself, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z), device=z.device).roll(len(a)))


def _plain_supcon(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """The paper's reference code, for one view."""
    logits = _logits(a, a)
    logits = logits - logits.max(1, keepdim=True).values.detach()
    other = 1 - torch.eye(len(a), dtype=logits.dtype, device=a.device)
    positive = (y[:, None] == y).to(logits) * other
    log_prob = logits - (logits.exp() * other).sum(1, keepdim=True).log()
    return -((positive * log_prob).sum(1) / positive.sum(1).clamp_min(1)).mean()


def _packages(loss: str, unit: Callable[[Tensor], Tensor]) -> dict[str, Loss]:
    if loss == "InfoNCE":
        return _sentence_transformers()
    if loss == "NT-Xent":
        return {"formula of lightly": _lightly_nt_xent} | _metric_learning("NTXentLoss", lambda a, b: torch.cat([a, b]))
    if loss == "SupCon":
        return _metric_learning("SupConLoss", lambda a, b: a)
    return {"formula of open_clip": lambda a, b, y: _open_clip(unit(a), unit(b))}


def _sentence_transformers() -> dict[str, Loss]:
    if importlib.util.find_spec("sentence_transformers") is None:
        return {"formula of sentence-transformers": _multiple_negatives_ranking}
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # pyright: ignore[reportMissingImports]

    package = MultipleNegativesRankingLoss(model=None, scale=1 / TAU)  # type: ignore[arg-type]
    return {"sentence-transformers": lambda a, b, y: package.compute_loss_from_embeddings([a, b], y)}


def _multiple_negatives_ranking(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    rows = torch.arange(len(a), device=a.device)
    scores = torch.mm(F.normalize(a[rows]), F.normalize(b).T) * (1 / TAU)
    return -(scores[rows, rows] - torch.logsumexp(torch.cat([scores], 1), 1)).mean()


def _lightly_nt_xent(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    a, b = F.normalize(a), F.normalize(b)
    n, itself = len(a), torch.eye(len(a), dtype=torch.bool, device=a.device)
    aa, ab, ba, bb = (torch.einsum("nc,mc->nm", x, z) / TAU for x, z in ((a, a), (a, b), (b, a), (b, b)))
    aa, bb = aa[~itself].view(n, -1), bb[~itself].view(n, -1)
    logits = torch.cat([torch.cat([ab, aa], 1), torch.cat([ba, bb], 1)])
    return F.cross_entropy(logits, torch.arange(n, device=a.device).repeat(2))


def _open_clip(a: Tensor, b: Tensor) -> Tensor:
    """Two products, the logits in the vectors' own precision; there too the caller normalises."""
    target = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(a @ b.T / TAU, target) + F.cross_entropy(b @ a.T / TAU, target)) / 2


def _metric_learning(name: str, rows: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Loss]:
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return {}
    from pytorch_metric_learning import losses

    package = getattr(losses, name)(temperature=TAU)

    def loss(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
        z = rows(a, b)
        return package(z, torch.arange(len(a), device=a.device).repeat(2) if len(z) > len(a) else y)

    return {"pytorch-metric-learning": loss}
