"""Pre-trained models of transformers, loaded from local files only.

Nothing is downloaded, and no code that belongs to a model is run. A run stores the architecture of the model
that it began with. Its trained weights can therefore be loaded without the model's files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.core import UsageError
from nearfar.core.errors import MissingExtra

PREPROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files in which a model states how its images were standardized."""


def import_transformers(purpose: str) -> Any:
    """Import transformers.

    Raises:
        MissingExtra: if it is not installed. The message names the purpose.
    """
    try:
        import transformers
    except ImportError as e:
        raise MissingExtra("transformers", "language", purpose) from e
    return transformers


def load_local_files(class_name: str, name: str, **options: Any) -> Any:
    """Load an object of a transformers class from a local folder or the local cache.

    Args:
        class_name: transformers class, such as "AutoModel".
        name: the folder, or a name in the local cache.
        options: further arguments of `from_pretrained`.

    Raises:
        UsageError: if there is no such model or it cannot be read.
    """
    transformers = import_transformers(f"the encoder hf:{name}")
    loud = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        return getattr(transformers, class_name).from_pretrained(name, local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError) as e:
        where = "folder has no readable model" if Path(name).is_dir() else "is neither a folder nor in the local cache"
        raise UsageError(f"--encoder hf:{name}: {where} ({str(e).splitlines()[0]})") from e
    finally:
        if loud:
            transformers.utils.logging.enable_progress_bar()


def read_pretrained_config(spec: str) -> dict[str, Any]:
    """Return the facts about a pre-trained encoder that a run stores.

    They are its architecture and, for an image model, the mean and deviation of its images. The dict is empty
    if the spec does not begin with "hf:".
    """
    if not spec.startswith("hf:"):
        return {}
    config = load_local_files("AutoConfig", spec[3:])
    return {"architecture": json.loads(config.to_json_string(use_diff=False))} | _standardised(spec[3:])


def load_transformers_model(name: str, architecture: Mapping[str, Any] | None = None) -> Any:
    """Load a model with its own weights.

    If `architecture` is given, the model has random weights and no file is read.
    """
    if architecture is None:
        return load_local_files("AutoModel", name, use_safetensors=True)
    transformers = import_transformers("this encoder")
    return transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**architecture), trust_remote_code=False)


def is_dual_encoder(model: Any) -> bool:
    """Return True if a model has two towers with a shared space, as CLIP has."""
    return all(hasattr(model, part) for part in ("text_model", "vision_model", "text_projection", "visual_projection", "logit_scale"))


def read_temperature(model: Any) -> float:
    """Return the temperature that a model with two towers has learned."""
    return math.exp(-float(model.logit_scale.detach()))


def _standardised(name: str) -> dict[str, Any]:
    """Return the channel means and deviations that an image model was trained with.

    The dict is empty if the model's files do not state them.
    """
    for file in PREPROCESSOR_FILES:
        path = import_transformers(f"the encoder hf:{name}").utils.cached_file(
            name, file, local_files_only=True, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
        )
        try:
            said = json.loads(Path(path).read_text()) if path else {}
        except (OSError, ValueError) as e:
            raise UsageError(f"--encoder hf:{name}: {file} is not readable JSON ({e})") from e
        said = said.get("image_processor", said)
        if "image_mean" in said and "image_std" in said:
            return {"standardised": {"mean": list(said["image_mean"]), "std": list(said["image_std"])}}
    return {}
