"""Sections of docs/results.md on parts and wholes: games, whose memory holds the answers, patches and places of images."""

from __future__ import annotations

from results_more import Found, Table, percent

TITLES = {"f1": "published protocol", "f1 converged": "probes to convergence"}


def games(found: Found, table: Table) -> str:
    rows = []
    for r in found["summary"]:
        numbers = [percent(r[who]) for who in ("majority class", "untrained encoder", "trained encoder")]
        published = percent(r["published"]) if r["published"] is not None else "–"
        rows.append([r["game"], TITLES[r["metric"]], str(r["seeds"]), *numbers, _gain(r, "untrained encoder"), published, _verdict(r)])
    frames = found["rows"][0]["frames"]
    after = f"\n\n{frames:,} frames of a random policy a game. Published figures: {found['source']}."
    return table(["game", "probes", "seeds", "majority", "untrained", "ST-DIM", "gain over untrained", "published", ""], rows) + after


def patches(found: Found, table: Table) -> str:
    rows = []
    for r in found["summary"]:
        numbers = [percent(r[who]) for who in ("raw pixels", "untrained encoder", "trained encoder")]
        rows.append([r["metric"], str(r["seeds"]), *numbers, _gain(r, "untrained encoder"), _verdict(r)])
    return table(["", "seeds", "raw pixels", "untrained", "CPC", "gain over untrained", ""], rows)


def places(found: Found, table: Table) -> str:
    rows = []
    for r in found["summary"]:
        numbers = [percent(r[who]) for who in ("raw pixels", "untrained encoder", "trained encoder")]
        rows.append([f"`{r['method']}`", r["metric"], str(r["seeds"]), *numbers, _gain(r, "untrained encoder"), _verdict(r)])
    return table(["", "", "seeds", "raw pixels", "untrained", "trained", "gain over untrained", ""], rows)


def _gain(row: Found, floor: str) -> str:
    error = row[f"standard error, {floor}"]
    return f"{100 * row[f'gain over {floor}']:+.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def _verdict(row: Found) -> str:
    return "**open**" if row["seeds"] < 3 else "**short**" if row["short"] else "above"


SECTIONS = (
    (
        "Games: ST-DIM",
        "benchmarks/games.py --data RECORDINGS --device cuda",
        "games",
        "F1 of linear probes for variables in the games' memory, on episodes the encoder has not seen. Under probes trained as the paper "
        "trains them the untrained encoder tells little; under probes that are standardised and converge it tells nearly as much.",
        games,
    ),
    (
        "Patches of images: CPC",
        "benchmarks/cpc_vision.py --data DATA",
        "cpc_vision",
        "CIFAR-10, the mean of the patches' features; above: by more than twice the paired standard error over both floors.",
        patches,
    ),
    (
        "Places of images: Deep InfoMax, AMDIM",
        "benchmarks/dim.py --data DATA",
        "dim",
        "The first 10,000 training and 2,000 test images of CIFAR-10, a small ConvNet, some minutes of one thread. `dim` is with InfoNCE, "
        "`dim-jsd` and `dim-dv` with the other estimators; above: by more than twice the paired standard error over both floors.",
        places,
    ),
)
