"""Gradients of ten losses by the score of the positive and of one negative, as an SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nearfar.losses import (
    batch_hard,
    batch_hard_soft_margin,
    binary_nce,
    contrastive_pair,
    debiased,
    hard_negative,
    info_nce,
    lifted_structure_generalized,
    ranking_hinge,
    sigmoid,
)
from nearfar.scores import Scores, cosine

TAU, ETA, MARGIN, POSITIVE = 0.2, 0.12, 0.3, 0.4
NEGATIVES = [-0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6]
FIXED = (
    f"One row with one positive and {len(NEGATIVES)} negatives, evenly spread over [{NEGATIVES[0]}, {NEGATIVES[-1]}]. Left, the positive "
    f"moves over [-1, 1]; right, it stays at {POSITIVE} and the nearest negative moves. Softmax and logistic losses see s / tau with "
    f"tau = {TAU}; eta is {ETA}, beta 1, m the number of negatives; margins are {MARGIN}; where a loss wants distances they are 1 - s."
)

FAMILIES: dict[str, dict[str, Callable[[Scores], Tensor]]] = {
    f"softmax, logistic: tau = {TAU}": {
        "info_nce": lambda S: info_nce(S / TAU),
        "debiased": lambda S: debiased(S / TAU, false_negative_share=ETA),
        "hard_negative": lambda S: hard_negative(S / TAU, false_negative_share=ETA, hardness=1.0),
        "binary_nce": lambda S: binary_nce(S / TAU, noise_ratio=len(NEGATIVES)),
        "sigmoid": lambda S: sigmoid(S / TAU),
    },
    f"margins: m = {MARGIN}": {
        "batch_hard": lambda S: batch_hard(S, MARGIN),
        "ranking_hinge": lambda S: ranking_hinge(S, MARGIN),
        "batch_hard_soft_margin": batch_hard_soft_margin,
        "contrastive_pair": lambda S: contrastive_pair(S + -1, MARGIN),
        "lifted_structure_generalized": lambda S: lifted_structure_generalized(S + -1, MARGIN),
    },
}

STYLE = """
.g { --paper: #ffffff; --ink: #222222; --quiet: #6b6b6b; --grid: #dddddd;
     --c0: #0066aa; --c1: #d04a00; --c2: #00805c; --c3: #b0408a; --c4: #7a5c00; }
@media (prefers-color-scheme: dark) {
.g { --paper: #14171a; --ink: #e8e8e8; --quiet: #a0a4a8; --grid: #34383c;
     --c0: #5bb8f5; --c1: #ff9350; --c2: #35d0a0; --c3: #ee9ccd; --c4: #ecd54a; } }
.g text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.g .quiet { fill: var(--quiet); font-size: 12px; }
.g .name { font-family: ui-monospace, monospace; }
.g .head { font-weight: 600; }
.g path { fill: none; stroke-width: 2; stroke-linejoin: round; }
.g line { stroke: var(--grid); }
.g .zero { stroke: var(--quiet); }
"""
DASHES = ["none", "9 4", "3 3", "11 3 2 3", "6 2"]
WIDTH, PANEL, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 1000, 330, 230, 56, 44, 54, 62


@dataclass(frozen=True)
class Panel:
    """A rectangle whose x-axis is [-1, 1]."""

    left: float
    top: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return self.left + (value + 1) / 2 * PANEL

    def y(self, value: float) -> float:
        return self.top + (self.high - value) / (self.high - self.low) * HEIGHT


def gradients(loss: Callable[[Scores], Tensor], points: int = 160) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and the derivative of the loss by a positive and by a negative that has these; one row of a table a point."""
    # Middles of cells: no point ties with a fixed candidate, or lies on a hinge, where a derivative would be a matter of rounding.
    scores = (2 * torch.arange(points, dtype=torch.float64) + 1) / points - 1
    pos, neg = torch.full((points, 1), POSITIVE, dtype=torch.float64), torch.tensor(NEGATIVES, dtype=torch.float64).repeat(points, 1)
    of_pos = _slope(loss, scores[:, None], neg)[0][:, 0]
    of_neg = _slope(loss, pos, torch.cat([neg[:, :-1], scores[:, None]], 1))[1][:, -1]
    return scores, of_pos, of_neg


def _slope(loss: Callable[[Scores], Tensor], pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    pos, neg = pos.clone().requires_grad_(), neg.clone().requires_grad_()
    found = torch.autograd.grad(loss(replace(Scores.from_lists(pos, neg), score=cosine)).sum(), [pos, neg])
    return found[0], found[1]


def gradients_figure() -> str:
    height = TOP + 2 * HEIGHT + GAP_Y + 48
    heads = "".join(
        f'<text class="head" x="{LEFT + i * (PANEL + GAP_X)}" y="24">{text}</text>'
        for i, text in enumerate(("dL/ds of the positive", "dL/ds of one negative"))
    )
    body = "".join(_family(row, title, curves) for row, (title, curves) in enumerate(FAMILIES.items()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="g" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">\n'
        f"<title>Gradients of ten losses</title>\n<desc>{FIXED}</desc>\n<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" style="fill: var(--paper)"/>\n{heads}\n{body}</svg>\n'
    )


def _family(row: int, title: str, losses: dict[str, Callable[[Scores], Tensor]]) -> str:
    found = {name: gradients(loss) for name, loss in losses.items()}
    text = ""
    for column in (1, 2):
        values = torch.cat([curves[column] for curves in found.values()])
        low, high, step = _axis(values.min().item(), values.max().item())
        panel = Panel(LEFT + (column - 1) * (PANEL + GAP_X), TOP + row * (HEIGHT + GAP_Y), low, high)
        text += _axes(panel, step)
        text += "".join(_curve(panel, i, curves[0], curves[column]) for i, curves in enumerate(found.values()))
    return text + _legend(row, title, list(found))


def _axis(low: float, high: float) -> tuple[float, float, float]:
    """Ends and step of an axis that holds 0 and all values, with at most seven ticks."""
    step = next(s for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0) if (high - low) / s <= 5)
    return step * min(0, _floor(low / step)), step * max(0, -_floor(-high / step)), step


def _floor(value: float) -> int:
    """Rounded down, but a hair above a tick counts as on it."""
    return int((value + 1e-9) // 1)


def _axes(panel: Panel, step: float) -> str:
    text, right, bottom = "", panel.left + PANEL, panel.top + HEIGHT
    for i in range(round((panel.high - panel.low) / step) + 1):
        value = panel.low + i * step
        y, kind = panel.y(value), ' class="zero"' if abs(value) < step / 2 else ""
        text += f'<line{kind} x1="{panel.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        text += f'<text class="quiet" x="{panel.left - 8}" y="{y + 4:.1f}" text-anchor="end">{value + 0.0:.1f}</text>'
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        text += f'<text class="quiet" x="{panel.x(value):.1f}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>'
    return text + f'<text class="quiet" x="{panel.x(0):.1f}" y="{bottom + 36}" text-anchor="middle">its score s</text>\n'


def _curve(panel: Panel, index: int, scores: Tensor, values: Tensor) -> str:
    points = " ".join(f"{panel.x(s):.1f},{panel.y(v):.1f}" for s, v in zip(scores.tolist(), values.tolist(), strict=True))
    return f'<path style="stroke: var(--c{index}); stroke-dasharray: {DASHES[index]}" d="M{points}"/>\n'


def _legend(row: int, title: str, names: list[str]) -> str:
    left, top = LEFT + 2 * PANEL + GAP_X + 18, TOP + row * (HEIGHT + GAP_Y) + 12
    text = f'<text class="head" x="{left}" y="{top}">{title}</text>'
    for i, name in enumerate(names):
        y = top + 26 + 24 * i
        text += f'<path style="stroke: var(--c{i}); stroke-dasharray: {DASHES[i]}" d="M{left},{y - 4} h34"/>'
        text += f'<text class="name" x="{left + 42}" y="{y}">{name}</text>'
    return text + "\n"
