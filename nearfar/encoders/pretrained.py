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
    Grey images are shown to a model of colours with equal channels.
    """

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.model, self.dim = _load(name)
        self.channels = int(getattr(self.model.config, "num_channels", 3))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        if x.shape[1] == 1:
            x = x.expand(-1, self.channels, -1, -1)
        if x.shape[1] != self.channels:
            raise UsageError(
                f"--encoder hf:{self.name} takes images of {self.channels} channel(s), these have {x.shape[1]}: use another model"
            )
        try:
            out = self.model(pixel_values=x)
        except ValueError as e:  # transformers' word for images of a size that the model does not take
            raise UsageError(f"--encoder hf:{self.name}: {str(e).splitlines()[0]} (--image-size scales them)") from e
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
