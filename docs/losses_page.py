r"""The page of losses and the figure of their gradients, made from the code.

    python docs/losses_page.py     write docs/losses.md and docs/losses.svg

What a loss says of itself is its docstring; which statistics it asks for is found by running it (losses_seen.py); how it
looks in statistics is code that is tested against it (losses_lines.py). Methods: the recipes' cards, and loss_uses.csv.
"""

from __future__ import annotations

import csv
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from losses_figure import FIXED, gradients_figure
from losses_lines import written_lines
from losses_seen import EVERY, Entry, entries

from nearfar import recipes, scores
from nearfar.scores import Statistic

FOLDER = Path(__file__).resolve().parent

OPENING = r"""# Losses

Made by `docs/losses_page.py` from the docstrings of `nearfar/losses`, from running its functions, and from the recipes' cards.

## A table and its statistics

A pairwise loss compares n anchors, the rows, with candidates, the columns, in a table of scores

$$S_{ij} = \text{scale} \cdot \text{score}(q_i, k_j) + \text{bias}.$$

For row i a column is *positive* ($j \in P_i$), *negative* ($j \in N_i$), or *skipped*: the row itself, a duplicate, a known
false negative. What is skipped takes no part. Take InfoNCE, the log-loss of a softmax, averaged over the positives:

$$\ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_{j \in P_i \cup N_i} e^{s_{ij}}}
= \log \sum_{j \in P_i \cup N_i} e^{s_{ij}} - \frac{1}{|P_i|} \sum_{p \in P_i} s_{ip}$$

Of the whole row three numbers are left: a log-sum-exp over all candidates, the sum over the positives, and how many these
are. In code, `S.all_lse - S.pos_sum / S.pos_count`. The other losses of the family need the same few numbers of other sides
of the row. There are four kinds of such statistics, of the sides `pos`, `neg` and `all`:

"""

AFTER_STATISTICS = r"""
This is why no loss has to hold the table. The statistics of two parts of a row make that of the whole row (sums add,
log-sum-exps by $\log(e^a + e^b)$), so columns may come in blocks, from other ranks, or be a row's private ones. And the
gradient has a short form: a loss is a function of a few numbers a row, and each of them, t, has a known slope,

$$\frac{\partial \ell_i}{\partial s_{ij}} = \sum_t \frac{\partial \ell_i}{\partial t_i} \frac{\partial t_i}{\partial s_{ij}},
\qquad \frac{\partial\thinspace \text{sum}}{\partial s_j} = 1, \quad
\frac{\partial\thinspace \text{lse}}{\partial s_j} = p\thinspace e^{p s_j - \text{lse}}, \quad
\frac{\partial\thinspace \text{softplus}}{\partial s_j} = \mp \frac{1}{1 + e^{\pm s_j}}.$$

Of InfoNCE it is $\operatorname{softmax}(s_i)_j$, less $1 / |P_i|$ at the positives.

## The family in statistics

Each line is code that gives the loss of its name wherever each row has positives and negatives; `lse(S, side, p)` is the
log-sum-exp with power p. The right column is what the loss itself was seen to ask of its table, with default arguments.

"""

AFTER_LINES = """
A maximum, a hinge, a sum that leaves out each candidate in turn: these are none of the four kinds. Losses made of them read
every score of a row, in blocks of rows: {dense}. Hinges over all triplets of a row still need no triplets:
[`sum_triplet_hinges`](#sum_triplet_hinges) counts violations by sorting.

## What they do to a score

![Gradients of ten losses by the score of a positive and of a negative](losses.svg)

{fixed}

Steep flanks are jumps. The logistic losses judge each score alone: their curves do not depend on the other candidates, those of
the softmax losses do. [`debiased`](#debiased) and [`hard_negative`](#hard_negative) let go of a positive so near that only the floor
is left of its negatives. With the latter an easy negative that comes nearer lowers the loss: it takes weight from the hard ones.

"""


def losses_page() -> str:
    statistics = re.findall(r"^\|.*\|$", inspect.getdoc(Statistic) or "", re.MULTILINE)
    by_name = {entry.name: entry for entry in entries()}
    lines = [[_link(name), f"`{code}`", _code(by_name[name].asked)] for name, code in written_lines().items()]
    dense = ", ".join(_link(e.name) for e in entries() if e.is_loss and EVERY in e.asked)
    parts = [OPENING, _math("\n".join(statistics)), "\n", AFTER_STATISTICS, _table(["loss", "line", "asked for"], lines)]
    parts += [AFTER_LINES.format(dense=dense, fixed=FIXED), _overview(), _uses(), "## One by one\n\n", *map(_entry, entries())]
    return "".join(parts).rstrip() + "\n"


def _overview() -> str:
    text = "## All of them\n\n"
    for kind in sorted({entry.kind for entry in entries()}):
        rows = [[_link(e.name), _linked(purpose(e), e.name), _returned(e.function), _code(e.asked)] for e in entries() if e.kind == kind]
        text += f"### {kind}\n\n" + _table(["function", "purpose", "gives", "asks its table for"], rows) + "\n"
    return text


def purpose(entry: Entry) -> str:
    """The docstring's first paragraph. Where that is an equation: the module's, unless others would have the same."""
    first = _first(entry.function)
    if first.startswith(r"\["):
        alike = [e for e in entries() if e.function.__module__ == entry.function.__module__ and _first(e.function).startswith(r"\[")]
        first = _first(inspect.getmodule(entry.function)) if len(alike) == 1 else first.replace(r"\[", r"\(").replace(r"\]", r"\)")
    return _math(" ".join(first.split()).rstrip(":,"), in_table=True)


def _first(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").split("\n\n")[0]


def _returned(function: Callable[..., Any]) -> str:
    annotation = inspect.signature(function).return_annotation
    shape = re.fullmatch(r"\w+\[Tensor, '([^']*)'\]", annotation)
    if shape is None:
        return "tuple" if annotation.startswith("tuple") else f"`{annotation}`"
    return f"({', '.join('…' if side == '_' else side.strip('{}') for side in shape[1].split())})"


def uses() -> list[tuple[str, str, str, str, str, list[str]]]:
    """Method, title, modality, loss, score, functions: of recipes from their cards, of other methods from loss_uses.csv."""
    found = []
    for name in recipes.list_methods():
        kind = recipes.load_method(name).recipe_class
        modules = [vars(sys.modules[c.__module__]) for c in kind.__mro__ if c.__module__.startswith("nearfar.recipes")]
        used = [e.name for e in entries() if any(value is e.function for module in modules for value in module.values())]
        found.append((name, kind.card.title, kind.card.modality, kind.card.loss, kind.card.score, used))
    with (FOLDER / "loss_uses.csv").open(newline="") as file:
        others = [row for row in csv.DictReader(file) if row["method"] not in recipes.list_methods()]
    return found + [(r["method"], r["title"], r["modality"], r["words"], r["score"], r["function"].split()) for r in others]


def _uses() -> str:
    rows = [
        [
            f"**{title}** (`{method}`)" if method in recipes.list_methods() else title,
            modality,
            loss or "–",
            score or "–",
            " ".join(map(_link, names)) or "–",
        ]
        for method, title, modality, loss, score, names in uses()
    ]
    words = (
        "Methods in bold have a recipe here; their words are those of its card. A dash: the method has none, or there is no function here."
    )
    return f"## Who uses them\n\n{words}\n\n" + _table(["method", "modality", "loss", "score", "function"], rows) + "\n"


def _entry(entry: Entry) -> str:
    signature = ", ".join(_written(p) for p in inspect.signature(entry.function).parameters.values())
    module = entry.function.__module__.rsplit(".", 1)[1]
    text = _math(inspect.getdoc(entry.function) or "")
    text = _arguments_as_lists(text)
    text = re.sub(r"^((?:Shapes|Requirements|Relations|Reference)[^:\n]*):", r"**\1:**", text, flags=re.MULTILINE)
    return f"### {entry.name}\n\n`{entry.name}({signature})`, in `losses/{module}.py`\n\n{_linked(text, entry.name)}\n\n"


def _arguments_as_lists(text: str) -> str:
    """Write the blocks `Args:`, `Returns:` and `Raises:` of a docstring as Markdown lists."""
    lines, inside = [], False
    for line in text.split("\n"):
        if re.fullmatch(r"(Args|Returns|Raises):", line):
            lines += [f"**{line}**", ""]
            inside = True
        elif inside and line.startswith("    "):
            named = re.match(r"    (\w+): (.*)", line)
            lines.append(f"- `{named[1]}`: {named[2]}" if named else "  " + line.strip())
        else:
            inside = False if line else inside
            lines.append(line)
    return "\n".join(lines)


def _written(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    default = next((name for name in scores.__all__ if getattr(scores, name) is parameter.default), repr(parameter.default))
    return f"{star}{parameter.name}" + ("" if parameter.default is parameter.empty else f"={default}")


def _math(text: str, in_table: bool = False) -> str:
    r"""Dollars for \( \) and \[ \], and names for escapes such as \, and \{, which Markdown would take for its own."""
    names = {r"\,": r"\thinspace ", r"\;": r"\thickspace ", r"\{": r"\lbrace ", r"\}": r"\rbrace ", r"\|": r"\Vert "}
    named = lambda m: re.sub(r"(\\[,;{}|]) ?", lambda escape: names[escape[1]], m[1]).strip()
    piped = (lambda m: named(m).replace("|", r"\vert ")) if in_table else named
    text = re.sub(r"\\\[(.*?)\\\]", lambda m: f"$${piped(m)}$$", text, flags=re.DOTALL)
    return re.sub(r"\\\((.*?)\\\)", lambda m: f"${piped(m)}$", text, flags=re.DOTALL)


def _linked(text: str, but: str) -> str:
    known = {entry.name for entry in entries()} - {but}
    return re.sub(r"`(\w+)`", lambda m: _link(m[1]) if m[1] in known else m[0], text)


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(name if name == EVERY else f"`{name}`" for name in names) or "–"


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, ["---"] * len(header), *rows])


if __name__ == "__main__":
    (FOLDER / "losses.md").write_text(losses_page())
    (FOLDER / "losses.svg").write_text(gradients_figure())
