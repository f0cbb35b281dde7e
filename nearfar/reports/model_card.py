"""Model card RUN/README.md: description of a trained model.

Hugging Face reads its header. The card is written when a run ends. It is written again with results when the
run is evaluated on its own data. A README that nearfar did not write is kept.
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

from nearfar import recipes
from nearfar.core import NearfarError
from nearfar.core.files import atomic_write
from nearfar.evaluate import ResultTable
from nearfar.train.model import Model
from nearfar.train.run_folder import RunFolder
from nearfar.version import __version__

logger = logging.getLogger("nearfar")
LIBRARY_LINE = "library_name: nearfar"
METRIC_TYPES = {
    r"few_labels|linear|knn|zero_shot": "accuracy", r"hits(\d+)": r"hits@\1", r"top(\d+)": r"accuracy@\1",
    r"to_(?:text|image)_(\d+)": r"recall@\1", r"(?:macro_|micro_)?f1( .*)?": "f1", "exact": "exact_match",
}  # fmt: skip
"""Metric types of the table's columns, as regular expressions."""
DATASET_LICENSES = {
    "digits": "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, as scikit-learn ships them)",
    "docstrings": "PSF-2.0 (docstrings of the Python standard library)",
    "docstring-pairs": "PSF-2.0 (docstrings of the Python standard library)",
    "docstring-triples": "PSF-2.0 (docstrings of the Python standard library)",
}
"""Licenses of the named datasets."""
METHOD_FIELDS = ("similarity", "query", "positive", "negative", "encoder", "head", "score", "loss")


def write_model_card(model: Model, table: ResultTable | None = None) -> None:
    """Write the card of a run with a folder, including the results in `table`.

    If the card cannot be written, a warning is logged and the run continues.
    """
    if model.run_folder is None:
        return
    path = get_card_path(model.run_folder)
    if path.exists() and not is_generated_card(path):
        logger.warning("%s was not written by nearfar: it is kept, and no model card is written", path)
        return
    try:
        with atomic_write(path) as f:
            f.write(render_model_card(model, table).encode())
    except (OSError, NearfarError) as e:
        logger.warning("the model card could not be written: %s", e)


def remove_model_card(folder: RunFolder) -> None:
    """Remove the card of a run that is replaced.

    Its results do not belong to the next run.
    """
    path = get_card_path(folder)
    if path.is_file() and is_generated_card(path):
        path.unlink()


def get_card_path(folder: RunFolder) -> Path:
    """Return the path of the model card."""
    return folder.path / "README.md"


def is_generated_card(path: Path) -> bool:
    """Return True if nearfar wrote the file."""
    return LIBRARY_LINE in path.read_text(encoding="utf-8", errors="replace")[:1000]


def render_model_card(model: Model, table: ResultTable | None) -> str:
    """Return the model card as Markdown."""
    card, name = model.recipe.card, _data_name(model)
    sections = [
        _head(model, table),
        f"# {card.title} on {name}",
        _read_paragraph(model, "Claim") or f"A {card.modality} encoder trained by contrast.",
        _method(model),
        _data(model),
        _settings(model),
        _numbers(model, table),
        _use(model),
        _limits(model, table),
        f"Written by nearfar {__version__}; `nearfar eval` updates it.",
    ]
    return "\n\n".join(sections) + "\n"


def _data_name(model: Model) -> str:
    """Return the last part of the data path.

    The full path of this machine stays private.
    """
    return Path(model.config.data).name or "an array"


def _head(model: Model, table: ResultTable | None) -> str:
    """Return the YAML header.

    Each value is JSON, which is also YAML.
    """
    card = model.recipe.card
    values: dict[str, Any] = {
        "pipeline_tag": model.modality.pipeline_tag,
        "tags": ["contrastive-learning", "self-supervised-learning", "embeddings", card.modality, _method_name(model)],
    }
    if table is not None and (results := _model_index(model, table)):
        values["model-index"] = results
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(["---", LIBRARY_LINE, *lines, "---"])


def _method_name(model: Model) -> str:
    name = recipes.find_method(model.recipe).name
    return Path(name.removesuffix(recipes.NO_FILE_SUFFIX)).stem if recipes.is_user_recipe(name) else name


def _model_index(model: Model, table: ResultTable) -> list[dict[str, Any]]:
    """Return the results of the trained encoder in Hugging Face's format."""
    assert model.run_folder is not None
    ours = [result for result in table.results if not result.get("baseline")]
    metrics = [
        {"type": _type(key), "name": f"{title}, {result['representation']}", "value": round(100 * result[key], 2)}
        for result in ours
        for key, title in table.accuracy_columns.items()
        if key in result
    ]
    if not metrics:
        return []
    name = _data_name(model)
    result = {"task": {"type": model.modality.pipeline_tag}, "metrics": metrics}
    return [
        {"name": model.run_folder.path.resolve().name, "results": [result | {"dataset": {"name": name, "type": name, "split": "test"}}]}
    ]


def _type(column: str) -> str:
    """Return Hugging Face's name of a metric.

    Metrics without such a name keep their own.
    """
    return next((found.expand(name) for pattern, name in METRIC_TYPES.items() if (found := re.fullmatch(pattern, column))), column)


def _method(model: Model) -> str:
    card = model.recipe.card
    rows = "\n".join(f"| {place} | {_cell(getattr(card, place))} |" for place in METHOD_FIELDS)
    paper = f"[{card.paper}](https://arxiv.org/abs/{card.paper[6:]})" if card.paper.startswith("arXiv:") else card.paper
    return f"## Method\n\n{card.title}, {card.year}, {paper}.\n\n$$\n{card.equation}\n$$\n\n| | |\n|---|---|\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _data(model: Model) -> str:
    assert model.run_folder is not None
    found, name = model.run_folder.read_config()["data"], _data_name(model)
    lines = [
        f"- source: {name}",
        f"- training samples: {found['train']:,}; test samples: {found['test']:,}; left out as unreadable: {len(found['skipped']):,}",
        f"- fingerprint of the training samples: `{found['fingerprint']}`",
        f"- licence of the data: {_describe_license(model.config.data)}",
    ]
    return "\n".join(["## Data", "", *lines])


def _describe_license(data: str) -> str:
    if data in DATASET_LICENSES:
        return DATASET_LICENSES[data]
    folder = Path(data) if Path(data).is_dir() else Path(data).parent
    file = next((f for f in sorted(folder.glob("LICEN[CS]E*")) if f.is_file()), None) if data and Path(data).exists() else None
    return f"see {file.name} next to the data" if file else "not known to nearfar; the weights may be bound by it"


def _settings(model: Model) -> str:
    run = dataclasses.asdict(model.config)
    run |= {name: Path(run[name]).name for name in ("data", "init_from", "tokenizer") if run[name]}
    settings = dataclasses.asdict(model.recipe) | {name: value for name, value in run.items() if value not in (None, "")}
    for name, value in settings.items():
        if isinstance(value, str) and value.startswith("hf:"):  # the path of this machine stays private
            settings[name] = f"hf:{Path(value[3:]).name}"
    text = (
        f"Step {model.step:,} of {model.config.steps or 0:,}; random seed {model.config.seed}. "
        f"`{build_rerun_command(Path(recipes.find_method(model.recipe).name).name, 'config.json')}` repeats the run.{_origin(model)}"
    )
    return f"## Settings\n\n{text}\n\n```json\n{json.dumps(settings, indent=2)}\n```"


def build_rerun_command(recipe: str, config: str) -> str:
    """Return the command that repeats a run.

    Custom recipes need their file.
    """
    own = "FILE.py " if recipe.endswith(recipes.NO_FILE_SUFFIX) else f"{shlex.quote(recipe)} " if recipes.is_user_recipe(recipe) else ""
    return f"nearfar fit {own}--config {shlex.quote(config)} --out NEW"


def _origin(model: Model) -> str:
    """Return a sentence about the source code of a custom recipe.

    The result is empty for methods of nearfar.
    """
    method = recipes.find_method(model.recipe)
    if not recipes.is_user_recipe(method.name):
        return ""
    kind = method.recipe_class.__name__
    if method.source_bytes is None:
        return f" FILE.py stands for a file that defines {kind}: it was trained from a notebook or a shell, and its source is not known."
    return f" {kind} is not one of nearfar's methods; `recipe.py` is a copy of the file that defined it when this run was trained."


def _numbers(model: Model, table: ResultTable | None) -> str:
    if table is None:
        return "## Numbers\n\nNot measured yet: `nearfar eval RUN` measures the run and updates this card."
    text = f"On the test split of {_data_name(model)}; an asterisk marks the best of a column."
    return f"## Numbers\n\n{text}\n\n```text\n{table.render()}\n```"


def _use(model: Model) -> str:
    name = recipes.find_method(model.recipe).name
    own = (
        f', recipe="{Path(name).name}"'
        if name.endswith(".py")
        else f", recipe={_method_name(model)}"
        if recipes.is_user_recipe(name)
        else ""
    )
    code = f'import nearfar\n\nvectors = nearfar.load("RUN"{own}).encode({model.modality.code_example})'
    width = getattr(model.net.encoder, "dim", None) if hasattr(model.net, "encoder") else None
    wide = f" The encoder's vectors are {width} wide." if width else ""
    return (
        f"## How to load\n\n```python\n{code}\n```\n\nRUN is the folder of this file.{wide} "
        "`nearfar embed` writes the vectors of whole data sets, `nearfar export` hands the encoder over to other libraries."
    )


def _limits(model: Model, table: ResultTable | None) -> str:
    lines = [
        f"- Trained for {model.step:,} steps on {_data_name(model)} alone: what is rare or missing there is not represented well.",
        "- Near means alike as the method understands it (the positives above), not alike for every purpose: "
        "biases of the data are in the vectors too.",
        "- Vectors of different runs cannot be compared with each other.",
    ]
    if requirements := _read_paragraph(model, "Requirements"):
        lines.insert(0, f"- The method's requirements: {requirements}")
    if table is not None and table.verdict:
        lines.insert(0, f"- {table.verdict}")
    return "\n".join(["## Limits", "", *lines])


def _read_paragraph(model: Model, name: str) -> str:
    """Return a paragraph of the recipe's docstring by its label."""
    text = getattr(inspect.getmodule(type(model.recipe)), "__doc__", None) or ""
    found = re.search(rf"^{name}:(.*?)(?:\n\s*\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""
