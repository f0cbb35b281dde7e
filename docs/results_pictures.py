"""Sections of docs/results.md on pictures with text: names find drawings, captions photographs, both ways."""

from __future__ import annotations

from typing import Any

from results_more import Found, Table, percent

WAYS = {f"to_{way}_{k}": f"{title} R@{k}" for way, title in (("text", "image→text"), ("image", "text→image")) for k in (1, 5, 10)}
DRAWINGS = {f"drawing_{k}": f"drawing→drawing R@{k}" for k in (1, 5, 10)}
ORDER = ("chance", "largest category", "raw pixels", "borrowed words", "untrained encoders", "trained encoders")


def emoji(found: Found, table: Table) -> str:
    """Return recalls, gains over the floors, and where the settings come from."""
    columns = WAYS | DRAWINGS | {"zero_shot": "zero-shot"}
    parts = [_means(found["summary"], columns, table), _verdicts(found.get("verdicts", []), table), f"\n\n{_selected(found)}"]
    return "".join(parts)


def _selected(found: Found) -> str:
    """Return how the settings were selected: the script selects the best stored trial, and its defaults if there are none."""
    settings = ", ".join(f"`{name}={value}`" for name, value in found["settings"].items() if name != "prompts")
    if found.get("selection") is None:
        return f"Settings: the defaults of the script ({settings}). No trials on validation emojis are stored."
    tried = {row["setting"] for row in found["selection"]["rows"]}
    return f"Settings: *{found['chosen']}* ({settings}), the best of {len(tried)} tried on validation emojis."


def flickr8k(found: Found, table: Table) -> str:
    parts = []
    for name, verdicts in found["verdicts"].items():
        rows = [r for r in found["summary"] if r["experiment"] == name]
        parts.append(f"Text tower: `{found['settings'][name]['text_encoder']}`\n\n{_means(rows, WAYS, table)}{_verdicts(verdicts, table)}")
    return "\n\n".join(parts)


def _means(summary: list[dict[str, Any]], columns: dict[str, str], table: Table) -> str:
    of = {(r["representation"], r["metric"]): r for r in summary}
    named = [name for name in ORDER if any(who == name for who, _ in of)]
    cells = [[percent(of[name, c]["mean"], of[name, c]["std"]) if (name, c) in of else "–" for c in columns] for name in named]
    return table(["", *columns.values()], [[name, *row] for name, row in zip(named, cells, strict=True)])


def _verdicts(verdicts: list[dict[str, Any]], table: Table) -> str:
    if not verdicts:
        return ""
    rows = [
        [(WAYS | DRAWINGS)[v["metric"]], str(v["seeds"]), f"{100 * v['gain']:+.1f}", f"± {100 * v['error']:.1f}", _said(v)]
        for v in verdicts
    ]
    return "\n\nGained over borrowed words (between drawings: over raw pixels), in points:\n\n" + table(
        ["", "seeds", "gain", "error", ""], rows
    )


def _said(verdict: dict[str, Any]) -> str:
    return "**open**" if verdict["seeds"] < 3 else "above" if verdict["above"] else "**short**"


SECTIONS = (
    (
        "Emojis of two vendors",
        "benchmarks/emoji.py",
        "emoji",
        "No drawing of a test emoji is in the training set. Recall in percent. *above*: the gain is more "
        "than twice the larger of two errors, the paired bootstrap's over emojis and the standard error "
        "over seeds. Borrowed words: the names of the drawings nearest in raw pixels.",
        emoji,
    ),
    (
        "Flickr8k at 64 pixels",
        "benchmarks/flickr8k.py --device cuda",
        "flickr8k",
        "The published split, both towers from scratch on 6,000 photographs; recall in per cent among 1,000 photographs and their "
        "captions. Borrowed words: captions of the training photographs nearest in raw pixels, by tf-idf.",
        flickr8k,
    ),
)  # fmt: skip
