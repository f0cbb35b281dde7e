"""Any image model of transformers, by name or local folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import UsageError


class HuggingFaceImage(nn.Module):
    """A transformers image backbone: its pooled output, or the mean of its last hidden states.

    Only local files are read (a folder, or a model already in the local cache). `dim` is the width of the output.
    """

    def __init__(self, name: str):
        super().__init__()
        self.model, self.dim = _load(name)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        out = self.model(pixel_values=x)
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            pooled = out.last_hidden_state.mean(1)
        return pooled.flatten(1)


def _load(name: str) -> tuple[Any, int]:
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as e:
        raise UsageError(f"the encoder hf:{name} needs the package transformers, which is not installed") from e
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
        model = AutoModel.from_pretrained(name, local_files_only=True, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError) as e:
        where = "folder has no readable model" if Path(name).is_dir() else "is neither a folder nor in the local cache"
        raise UsageError(f"--encoder hf:{name}: {where} ({str(e).splitlines()[0]})") from e
    sizes = getattr(config, "hidden_sizes", None)
    return model, int(sizes[-1] if sizes else config.hidden_size)
