"""A finished sentence encoder from a local folder, as sentence-transformers writes them: texts in, vectors out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import UsageError

Pooling = Literal["mean", "cls", "max"]
_POOLING: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}


class SentenceEncoder(nn.Module):
    """A transformers text model with its tokenizer, pooling over tokens and, if it was trained with it, unit length.

        encode = SentenceEncoder("all-MiniLM-L6-v2", device="cpu");  encode(["a text", "another"])  ->  (2, 384)

    Only local files are read. Pooling, normalisation and the largest number of tokens come from the folder's own
    settings (1_Pooling/config.json, modules.json, sentence_bert_config.json); a plain transformers folder gets the mean
    of its tokens, as they are.
    """

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu", batch: int = 64):
        super().__init__()
        self.folder, self.batch = Path(folder), batch
        if not (self.folder / "config.json").is_file():
            raise UsageError(f"{folder} holds no text model: expected a folder with config.json, model.safetensors and a tokenizer")
        self.pooling: Pooling = _pooling(_settings(self.folder / "1_Pooling" / "config.json"), self.folder)
        self.normalise = any(str(m.get("type", "")).endswith(".Normalize") for m in _settings(self.folder / "modules.json") or [])
        self.tokenizer, self.model = _load(self.folder)
        self.longest = int(_settings(self.folder / "sentence_bert_config.json").get("max_seq_length") or 0) or _longest(self.model)
        self.dim = int(self.model.config.hidden_size)
        self.to(device).eval()

    def forward(self, ids: Int[Tensor, "n t"], mask: Int[Tensor, "n t"]) -> Float[Tensor, "n d"]:
        tokens = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        x = pool(tokens, mask, self.pooling)
        return F.normalize(x, dim=1) if self.normalise else x

    @torch.no_grad()
    def encode(self, texts: list[str], progress: Callable[[int, int], None] | None = None) -> Float[Tensor, "n d"]:
        """The vectors of the texts, in their order, on the model's device. Texts of like length share a batch: less padding."""
        device = next(self.model.parameters()).device
        out = torch.empty(len(texts), self.dim, device=device)
        if not texts:
            return out
        ids = self.tokenizer(texts, truncation=True, max_length=self.longest)["input_ids"]
        order = sorted(range(len(texts)), key=lambda i: -len(ids[i]))
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            padded = self.tokenizer.pad({"input_ids": [ids[i] for i in rows]}, return_tensors="pt").to(device)
            out[torch.tensor(rows, device=device)] = self(padded["input_ids"], padded["attention_mask"]).float()
            if progress:
                progress(start + len(rows), len(texts))
        return out


def pool(tokens: Float[Tensor, "n t d"], mask: Int[Tensor, "n t"], how: Pooling = "mean") -> Float[Tensor, "n d"]:
    """One vector a text from its tokens' vectors, padding left out: their mean, their maximum, or the first (CLS)."""
    if how == "cls":
        return tokens[:, 0]
    there = mask.bool()[:, :, None]
    if how == "max":
        return tokens.masked_fill(~there, torch.finfo(tokens.dtype).min).amax(1)
    return tokens.masked_fill(~there, 0).sum(1) / there.sum(1).clamp_min(1)


def _settings(path: Path) -> Any:
    """A settings file's content; {} if there is none."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise UsageError(f"{path} is not readable JSON ({e})") from e


def _pooling(settings: dict[str, Any], folder: Path) -> Pooling:
    wanted = [name for name, on in settings.items() if name.startswith("pooling_mode") and on is True]
    if not wanted:
        return "mean"
    if len(wanted) > 1 or wanted[0] not in _POOLING:
        raise UsageError(f"{folder / '1_Pooling' / 'config.json'}: pooling by {' and '.join(wanted)} is not supported: mean, cls or max is")
    return _POOLING[wanted[0]]


def _load(folder: Path) -> tuple[Any, Any]:
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as e:
        raise UsageError(f"the encoder in {folder} needs the package transformers, which is not installed") from e
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        model = AutoModel.from_pretrained(str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError) as e:
        raise UsageError(f"{folder} holds no readable text model ({str(e).splitlines()[0]})") from e
    return tokenizer, model


def _longest(model: Any) -> int:
    return int(getattr(model.config, "max_position_embeddings", 512))
