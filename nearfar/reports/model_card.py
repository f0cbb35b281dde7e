"""RUN/README.md: what a trained model is, for who finds it later or somewhere else. Hugging Face reads its head.

Written when a run ends, and again, with numbers, when it is evaluated on its own data. A README that is not nearfar's stays.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import re
import shlex
from pathlib import Path
from typing import Any

import nearfar
from nearfar import recipes
from nearfar.core import NearfarError
from nearfar.core.files import atomic_write
from nearfar.evaluate import Table
from nearfar.train.model import Trained
from nearfar.train.run_folder import RunFolder

log = logging.getLogger("nearfar")
OURS = "library_name: nearfar"
PIPELINES = {"image": "image-feature-extraction", "text": "sentence-similarity"}
"""What Hugging Face calls the use of an encoder; of other modalities feature-extraction."""
TYPES = {
    r"few_labels|linear|knn|zero_shot": "accuracy", r"hits(\d+)": r"hits@\1", r"top(\d+)": r"accuracy@\1",
    r"to_(?:text|image)_(\d+)": r"recall@\1", r"(?:macro_|micro_)?f1( .*)?": "f1", "exact": "exact_match",
}  # fmt: skip
"""Types of measures by columns of the table."""
LICENCES = {
    "digits": "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, as scikit-learn ships them)",
    "docstrings": "PSF-2.0 (docstrings of the Python standard library)",
    "docstring-pairs": "PSF-2.0 (docstrings of the Python standard library)",
    "docstring-triples": "PSF-2.0 (docstrings of the Python standard library)",
}
"""Of data that go by a name."""
PLACES = ("similarity", "query", "positive", "negative", "encoder", "head", "score", "loss")


def write_card(trained: Trained, table: Table | None = None) -> None:
    """Write the card of a run that has a folder, with the numbers of `table` if there are any.

    A card is no reason to fail: where it cannot be written, a warning says so.
    """
    if trained.folder is None:
        return
    path = card_file(trained.folder)
    if path.exists() and not is_ours(path):
        log.warning("%s is not nearfar's: it is left as it is, and there is no model card", path)
        return
    try:
        with atomic_write(path) as f:
            f.write(card_text(trained, table).encode())
    except (OSError, NearfarError) as e:
        log.warning("the model card could not be written: %s", e)


def remove_card(folder: RunFolder) -> None:
    """Of a run that is replaced: its numbers are not those of the next one."""
    path = card_file(folder)
    if path.is_file() and is_ours(path):
        path.unlink()


def card_file(folder: RunFolder) -> Path:
    return folder.path / "README.md"


def is_ours(path: Path) -> bool:
    return OURS in path.read_text(encoding="utf-8", errors="replace")[:1000]


def card_text(trained: Trained, table: Table | None) -> str:
    card, name = trained.recipe.card, _data_name(trained)
    sections = [
        _head(trained, table),
        f"# {card.title} on {name}",
        _part(trained, "Claim") or f"A {card.modality} encoder trained by contrast.",
        _method(trained),
        _data(trained),
        _settings(trained),
        _numbers(trained, table),
        _use(trained),
        _limits(trained, table),
        f"Written by nearfar {nearfar.__version__}; `nearfar eval` writes it anew.",
    ]
    return "\n\n".join(sections) + "\n"


def _data_name(trained: Trained) -> str:
    """The last part of a path only: where data lie on this machine is nobody's business."""
    return Path(trained.run.data).name or "an array"


def _head(trained: Trained, table: Table | None) -> str:
    """YAML, each value as JSON, which is YAML too."""
    card = trained.recipe.card
    values: dict[str, Any] = {
        "pipeline_tag": PIPELINES.get(card.modality, "feature-extraction"),
        "tags": ["contrastive-learning", "self-supervised-learning", "embeddings", card.modality, _method_name(trained)],
    }
    if table is not None and (results := _model_index(trained, table)):
        values["model-index"] = results
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(["---", OURS, *lines, "---"])


def _method_name(trained: Trained) -> str:
    name = recipes.of(trained.recipe).name
    return Path(name.removesuffix(recipes.NO_FILE)).stem if recipes.is_own(name) else name


def _model_index(trained: Trained, table: Table) -> list[dict[str, Any]]:
    """What was measured of the trained encoder, as Hugging Face lists it."""
    assert trained.folder is not None
    ours = [result for result in table.results if not result.get("baseline")]
    metrics = [
        {"type": _type(key), "name": f"{title}, {result['representation']}", "value": round(100 * result[key], 2)}
        for result in ours
        for key, title in table.accuracies.items()
        if key in result
    ]
    if not metrics:
        return []
    name = _data_name(trained)
    result = {"task": {"type": PIPELINES.get(trained.recipe.card.modality, "feature-extraction")}, "metrics": metrics}
    return [{"name": trained.folder.path.resolve().name, "results": [result | {"dataset": {"name": name, "type": name, "split": "test"}}]}]


def _type(column: str) -> str:
    """What Hugging Face calls a measure; one that it has no name for keeps its own."""
    return next((found.expand(name) for pattern, name in TYPES.items() if (found := re.fullmatch(pattern, column))), column)


def _method(trained: Trained) -> str:
    card = trained.recipe.card
    rows = "\n".join(f"| {place} | {_cell(getattr(card, place))} |" for place in PLACES)
    paper = f"[{card.paper}](https://arxiv.org/abs/{card.paper[6:]})" if card.paper.startswith("arXiv:") else card.paper
    return f"## Method\n\n{card.title}, {card.year}, {paper}.\n\n$$\n{card.equation}\n$$\n\n| | |\n|---|---|\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _data(trained: Trained) -> str:
    assert trained.folder is not None
    found, name = trained.folder.config()["data"], _data_name(trained)
    lines = [
        f"- source: {name}",
        f"- training samples: {found['train']:,}; test samples: {found['test']:,}; left out as unreadable: {len(found['skipped']):,}",
        f"- fingerprint of the training samples: `{found['fingerprint']}`",
        f"- licence of the data: {_licence(trained.run.data)}",
    ]
    return "\n".join(["## Data", "", *lines])


def _licence(data: str) -> str:
    if data in LICENCES:
        return LICENCES[data]
    folder = Path(data) if Path(data).is_dir() else Path(data).parent
    file = next((f for f in sorted(folder.glob("LICEN[CS]E*")) if f.is_file()), None) if data and Path(data).exists() else None
    return f"see {file.name} beside the data" if file else "not known to nearfar; the weights may be bound by it"


def _settings(trained: Trained) -> str:
    run = dataclasses.asdict(trained.run)
    run |= {name: Path(run[name]).name for name in ("data", "init", "tokenizer") if run[name]}
    settings = dataclasses.asdict(trained.recipe) | {name: value for name, value in run.items() if value not in (None, "")}
    for name, value in settings.items():
        if isinstance(value, str) and value.startswith("hf:"):  # a folder of this machine is nobody's business
            settings[name] = f"hf:{Path(value[3:]).name}"
    text = (
        f"Step {trained.step:,} of {trained.run.steps or 0:,}; seed {trained.run.seed} names every random number. "
        f"`{repeating(Path(recipes.of(trained.recipe).name).name, 'config.json')}` repeats the run.{_origin(trained)}"
    )
    return f"## Settings\n\n{text}\n\n```json\n{json.dumps(settings, indent=2)}\n```"


def repeating(recipe: str, config: str) -> str:
    """The command that trains a run once more; a recipe that is not nearfar's own must be named."""
    own = "FILE.py " if recipe.endswith(recipes.NO_FILE) else f"{shlex.quote(recipe)} " if recipes.is_own(recipe) else ""
    return f"nearfar fit {own}--config {shlex.quote(config)} --out NEW"


def _origin(trained: Trained) -> str:
    """Where the code of a recipe that is not nearfar's own is to be found."""
    method = recipes.of(trained.recipe)
    if not recipes.is_own(method.name):
        return ""
    kind = method.recipe.__name__
    if method.text is None:
        return f" FILE.py stands for a file that defines {kind}: it was trained from a notebook or a shell, and its source is not known."
    return f" {kind} is not one of nearfar's methods; `recipe.py` is a copy of the file that defined it when this run was trained."


def _numbers(trained: Trained, table: Table | None) -> str:
    if table is None:
        return "## Numbers\n\nNot measured yet: `nearfar eval RUN` measures and writes this card anew."
    text = f"On the test split of {_data_name(trained)}; an asterisk marks the best of a column."
    return f"## Numbers\n\n{text}\n\n```text\n{table.render()}\n```"


def _use(trained: Trained) -> str:
    what = {"image": "images", "text": '["a text", "another"]', "words": '["a", "word"]'}.get(trained.recipe.card.modality, "samples")
    name = recipes.of(trained.recipe).name
    own = f', recipe="{Path(name).name}"' if name.endswith(".py") else f", recipe={_method_name(trained)}" if recipes.is_own(name) else ""
    code = f'import nearfar\n\nvectors = nearfar.load("RUN"{own}).encode({what})'
    width = getattr(trained.net.encoder, "dim", None) if hasattr(trained.net, "encoder") else None
    wide = f" The encoder's vectors are {width} wide." if width else ""
    return (
        f"## How to load\n\n```python\n{code}\n```\n\nRUN is the folder of this file.{wide} "
        "`nearfar embed` writes the vectors of whole data sets, `nearfar export` hands the encoder over to other libraries."
    )


def _limits(trained: Trained, table: Table | None) -> str:
    lines = [
        f"- Trained for {trained.step:,} steps on {_data_name(trained)} alone: what is rare or missing there is not represented well.",
        "- Near means alike as the method understands it (the positives above), not alike for every purpose: "
        "biases of the data are in the vectors too.",
        "- Vectors of different runs cannot be compared with each other.",
    ]
    if requirements := _part(trained, "Requirements"):
        lines.insert(0, f"- The method's requirements: {requirements}")
    if table is not None and table.verdict:
        lines.insert(0, f"- {table.verdict}")
    return "\n".join(["## Limits", "", *lines])


def _part(trained: Trained, name: str) -> str:
    """A paragraph of the recipe's own text, by its first word."""
    text = getattr(inspect.getmodule(type(trained.recipe)), "__doc__", None) or ""
    found = re.search(rf"^{name}:(.*?)(?:\n\s*\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""
